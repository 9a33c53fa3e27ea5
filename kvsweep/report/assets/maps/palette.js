// Colours, patterns and letters. Every state has all three, so that none depends on telling colours apart.

const LIGHT = {
  name: "light", page: "#ffffff", text: "#1b2330", muted: "#5a6472", line: "#c4cbd4", halo: "#ffffff", mark: "#101418",
  states: ["#f0d3ca", "#e3a33f", "#9a86ad", "#1f5fa8"], ink: ["#1b2330", "#1b2330", "#1b2330", "#ffffff"],
  none: "#c3c8cf",
};
const DARK = {
  name: "dark", page: "#151a21", text: "#e8ecf1", muted: "#a7b0bd", line: "#465161", halo: "#151a21", mark: "#ffffff",
  states: ["#57383a", "#b07a2c", "#8d7da3", "#8fc4f8"], ink: ["#ffffff", "#151a21", "#151a21", "#151a21"],
  none: "#3d4653",
};

const STATE_LETTERS = ["F", "S", "O", "P"];
const STATE_TEXTS = ["Fail", "Too slow", "Overloaded", "Pass"];

/** 8 × 8 patterns as functions of a pixel: whether it is drawn darker. */
const PATTERNS = {
  plain: () => false,
  cross: (x, y) => (x + y) % 8 < 1.5 || (x - y + 8) % 8 < 1.5,
  columns: (x) => x % 4 < 1,
  diagonal: (x, y) => (x + y) % 8 < 1.5,
  dots: (x, y) => (x % 8 < 2 && y % 8 < 2) || ((x + 4) % 8 < 2 && (y + 4) % 8 < 2),
  rows: (x, y) => y % 8 < 1.5,
  bars: (x) => x % 8 < 1.5,
  back: (x, y) => (x - y + 8) % 8 < 1.5,
  bricks: (x, y) => y % 4 < 1 || (x + (y % 8 < 4 ? 0 : 4)) % 8 < 1,
};
const STATE_PATTERNS = [PATTERNS.cross, PATTERNS.columns, PATTERNS.diagonal, PATTERNS.plain];
const POLICY_PATTERNS = [
  PATTERNS.plain, PATTERNS.diagonal, PATTERNS.bars, PATTERNS.dots, PATTERNS.rows, PATTERNS.back, PATTERNS.bricks,
];
const SPARE_COLORS = ["#4f8cff", "#d98c1f", "#1f9e89", "#a05cc2", "#c2587f", "#7f7f2a"];
const DASHES = ["", "9 4", "3 3", "12 3 3 3", "6 2 2 2 2 2", "1 3"];

/** The theme to draw in: light on paper, otherwise what the reader prefers. */
function currentTheme() {
  const dark = matchMedia("(prefers-color-scheme: dark)").matches && !matchMedia("print").matches;
  return dark ? DARK : LIGHT;
}

/** Colour of a policy: its own where it is a plain hex colour, otherwise one of ours. */
function policyColor(policies, index) {
  const own = policies[index].color;
  return /^#[0-9a-f]{6}$/i.test(own) ? own : SPARE_COLORS[index % SPARE_COLORS.length];
}

/** Mark of a policy in cells, legends and lines. */
function policyMark(index) {
  return String(index + 1);
}

/** [r, g, b] of a #rrggbb colour. */
function rgb(color) {
  return [1, 3, 5].map((start) => parseInt(color.slice(start, start + 2), 16));
}

/** "#ffffff" or "#1b2330", whichever reads better on `color`. */
function inkOn(color) {
  const [r, g, b] = rgb(color).map((part) => (part / 255) ** 2.2);
  return 0.2126 * r + 0.7152 * g + 0.0722 * b > 0.32 ? "#1b2330" : "#ffffff";
}

/** 64 pixels of a colour with its pattern, as 32-bit RGBA. */
function patternTile(color, pattern, strength = 0.28) {
  const tile = new Uint32Array(64);
  const base = rgb(color);
  const light = inkOn(color) === "#ffffff";
  const dark = base.map((part) => Math.round(light ? part + (255 - part) * strength : part * (1 - strength)));
  for (let i = 0; i < 64; i++) tile[i] = packColor(pattern(i & 7, i >> 3) ? dark : base);
  return tile;
}

function packColor([r, g, b]) {
  return ((255 << 24) | (b << 16) | (g << 8) | r) >>> 0;
}

/** Tiles of the four states. */
function stateTiles(theme) {
  return theme.states.map((color, state) => patternTile(color, STATE_PATTERNS[state], 0.2));
}

/**
 * How the states of a plane of codes are named and drawn: as the header says, otherwise as the four of the SLO.
 * The share of states with a `note` is told above each map.
 */
function stateLook(cube, plane, theme) {
  const own = cube.header.states?.[plane];
  if (!own) {
    return { names: VERDICTS, texts: STATE_TEXTS, letters: STATE_LETTERS, notes: ["", "", "", "pass"], none: "",
      colors: theme.states, inks: theme.ink, tiles: stateTiles(theme) };
  }
  const each = (part) => own.map((state) => state[part]);
  const colors = each(theme.name);
  return { names: each("name"), texts: each("text"), letters: each("letter"), notes: each("note"),
    none: cube.header.unchanged, colors, inks: colors.map(inkOn),
    tiles: own.map((state, i) => patternTile(colors[i], PATTERNS[state.pattern])) };
}

/** Tiles of the policies and, last, of "none". */
function policyTiles(theme, policies) {
  const tiles = policies.map((_, i) => patternTile(policyColor(policies, i), POLICY_PATTERNS[i % POLICY_PATTERNS.length], 0.17));
  return [...tiles, patternTile(theme.none, PATTERNS.cross)];
}

// Cividis and a blue-white-orange map, by a few anchors each; both keep their order for every kind of colour vision.
const SEQUENTIAL = ["#00224e", "#2a3f6d", "#575c6d", "#7d7c78", "#a69d75", "#d3c164", "#fee838"].map(rgb);
const DIVERGING = ["#1f5fa8", "#6ea6d8", "#cfe2f1", "#f4f1ea", "#f7d3a4", "#e2903c", "#a3470f"].map(rgb);

/** 256 colours, as 32-bit RGBA, along the anchors. */
function ramp(anchors) {
  return Uint32Array.from({ length: 256 }, (_, i) => {
    const at = (i / 255) * (anchors.length - 1);
    const low = Math.min(Math.floor(at), anchors.length - 2);
    return packColor(anchors[low].map((part, c) => Math.round(part + (anchors[low + 1][c] - part) * (at - low))));
  });
}
