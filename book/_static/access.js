/* A formula too wide for a phone scrolls; with this it also scrolls for a reader who has only keys. */
(function () {
  "use strict";
  const mend = () =>
    document.querySelectorAll('mjx-container[display="true"]').forEach((formula) => {
      if (formula.scrollWidth > formula.clientWidth) formula.setAttribute("tabindex", "0");
      else formula.removeAttribute("tabindex");
    });
  window.addEventListener("load", () => {
    const ready = window.MathJax && MathJax.startup && MathJax.startup.promise;
    if (ready) ready.then(mend);
  });
  window.addEventListener("resize", mend);
})();
