// A one-time link holds its secret after the #, which browsers never send. This script reads it, removes it from the
// address bar and the history, and posts it.
function signIn() {
  const secret = location.hash.slice(1);
  if (!/^[\w-]{43}$/.test(secret)) return;
  history.replaceState(null, "", location.pathname);
  const form = document.getElementById("sign-in");
  form.elements.link.value = secret;
  form.submit();
}

signIn();
addEventListener("hashchange", signIn); // the link was opened in a tab that already showed this page
