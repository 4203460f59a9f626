// Still pictures become the same pictures with hover values, when they come into view.
// Expressions are interpreted, never evaluated as code, so that the page forbids evaluation.
const options = { mode: "vega", renderer: "svg", ast: true, actions: false };
const draw = async (chart) => {
  const place = document.createElement("div");
  await vegaEmbed(place, JSON.parse(document.getElementById(chart.dataset.spec).textContent), options);
  place.querySelector("svg").setAttribute("aria-hidden", "true");
  const still = chart.querySelector("svg");
  still.replaceWith(place);
  chart.setAttribute("role", "img");
  chart.setAttribute("aria-label", still.getAttribute("aria-label"));
  chart.dataset.live = "yes";
};
const seen = new IntersectionObserver((entries) => {
  for (const entry of entries.filter((one) => one.isIntersecting)) {
    seen.unobserve(entry.target);
    draw(entry.target);
  }
}, { rootMargin: "200px" });
document.querySelectorAll("[data-spec]").forEach((chart) => seen.observe(chart));
