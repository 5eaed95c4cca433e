// The first page: exchanges the token of the address for a session, then leaves.
"use strict";

const state = document.getElementById("state");
const form = document.getElementById("token-form");

function ask(text) {
  state.textContent = text;
  form.hidden = false;
  form.elements.token.focus();
}

async function open(token) {
  const answer = await fetch("/session", {
    method: "POST",
    headers: { "Content-Type": "application/json" },
    body: JSON.stringify({ token }),
  });
  if (!answer.ok) {
    ask("This token is wrong, or the command was started again since. Use the link that it has printed.");
    return;
  }
  location.replace((await answer.json()).next);
}

form.addEventListener("submit", (event) => {
  event.preventDefault();
  open(form.elements.token.value.trim());
});

const token = new URLSearchParams(location.hash.slice(1)).get("token");
// The token must not stay in the address or in the history.
history.replaceState(null, "", "/");
if (token) {
  open(token);
} else {
  // A session may be open already.
  fetch("/home", { redirect: "follow" }).then((answer) => {
    if (answer.ok) {
      location.replace(answer.url);
    } else {
      ask("No session is open in this browser.");
    }
  });
}
