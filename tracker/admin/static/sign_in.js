// A one-time link carries its secret behind the #, which browsers send to nobody: it is taken from there, wiped from the
// address bar and the history, and posted.
const secret = location.hash.slice(1);
if (secret) {
  history.replaceState(null, "", location.pathname);
  const form = document.getElementById("sign-in");
  form.elements.link.value = secret;
  form.submit();
}
