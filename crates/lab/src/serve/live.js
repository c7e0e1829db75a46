"use strict";
(() => {
  const PERIOD_MS = 1000;
  const live = document.getElementById("live");
  const state = document.getElementById("state");
  let version = live.dataset.version;
  const look = async () => {
    try {
      const answer = await fetch("live", { headers: { "If-None-Match": version }, cache: "no-store" });
      if (answer.status === 200) {
        live.innerHTML = await answer.text();
        version = answer.headers.get("ETag") || "";
        state.textContent = "";
      } else if (answer.status !== 304) {
        state.textContent = await answer.text();
      } else {
        state.textContent = "";
      }
    } catch {
      state.textContent = "The lab does not answer: has myriad-lab serve ended?";
    }
    setTimeout(look, PERIOD_MS);
  };
  setTimeout(look, PERIOD_MS);
})();
