// A one-time link carries its secret behind the #, which browsers send to nobody: it is taken from there, wiped from the
// address bar and the history, and posted.
function signIn() {
  const secret = location.hash.slice(1);
  if (!/^[\w-]{43}$/.test(secret)) return;
  history.replaceState(null, "", location.pathname);
  const form = document.getElementById("sign-in");
  form.elements.link.value = secret;
  form.submit();
}

signIn();
addEventListener("hashchange", signIn); // the link was opened where this page was open already
