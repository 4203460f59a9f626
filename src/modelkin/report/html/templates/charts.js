// Still pictures become the same pictures with hover values, when they come into view.
// Expressions are interpreted, never evaluated as code, so that the page forbids evaluation.
const options = { mode: "vega", renderer: "svg", ast: true, actions: false };
const LEAST_WIDTH = 180;
// The page's own letters first: a picture that is drawn before they are there keeps empty boxes for Hangul.
const letters = Promise.all([...document.fonts].map((face) => face.load()));
// A chart that is wider than its place is drawn again as much narrower, so that a phone shows its last layer too.
const fitted = async (place, spec, room) => {
  await vegaEmbed(place, spec, options);
  const over = Number(place.querySelector("svg").getAttribute("width")) - room;
  if (over > 0 && spec.width > LEAST_WIDTH) {
    await vegaEmbed(place, { ...spec, width: Math.max(LEAST_WIDTH, Math.floor(spec.width - over)) }, options);
  }
};
const draw = async (chart) => {
  await letters;
  const place = document.createElement("div");
  const spec = JSON.parse(document.getElementById(chart.dataset.spec).textContent);
  await fitted(place, spec, chart.clientWidth || spec.width);
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
