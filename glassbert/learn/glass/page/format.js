// How numbers and colours look. Nothing is computed here that is shown as a number.

/** A number with so many significant digits. */
export function shown(value, digits = 3) {
  if (value === null || value === undefined) return "–";
  if (Number.isNaN(value)) return "NaN";
  if (!Number.isFinite(value)) return value > 0 ? "∞" : "−∞";
  if (value === 0) return "0";
  const size = Math.abs(value);
  const text =
    size >= 10 ** (digits + 1) || size < 1e-3
      ? value.toExponential(digits - 1).replace("e+", "e")
      : plain(value.toPrecision(digits));
  return text.replace(/-/g, "−");
}

function plain(text) {
  return text.includes("e") ? String(Number(text)) : text;
}

/** With a sign, for changes. */
export function signed(value, digits = 4) {
  return value > 0 ? `+${shown(value, digits)}` : shown(value, digits);
}

export function percent(chance) {
  const value = chance * 100;
  return `${value >= 99.95 ? "100" : value >= 10 ? value.toFixed(1) : value >= 0.01 ? value.toPrecision(2) : "<0.01"} %`;
}

export function times(shape) {
  return shape.length ? shape.join(" × ") : "one number";
}

export function grouped(number) {
  return Number(number).toLocaleString("en-US");
}

/** The numbers of an answer: float32 in base64, or a list. */
export function numbers(answer) {
  return answer.numbers ?? floats(answer.data);
}

/** A float32 array from base64. */
export function floats(data) {
  const bytes = Uint8Array.from(atob(data), (letter) => letter.charCodeAt(0));
  return new Float32Array(bytes.buffer, bytes.byteOffset, bytes.byteLength / 4);
}

const SCALES = {
  light: { zero: [255, 255, 255], plus: [38, 92, 201], minus: [214, 96, 22] },
  dark: { zero: [27, 31, 38], plus: [96, 150, 255], minus: [245, 140, 66] },
};

/** Blue above zero, orange below, stronger with size. */
export function heat(value, largest, dark) {
  const scale = dark ? SCALES.dark : SCALES.light;
  if (!Number.isFinite(value) || !largest) return scale.zero;
  const strength = Math.min(1, Math.abs(value) / largest) ** 0.6;
  const goal = value < 0 ? scale.minus : scale.plus;
  return scale.zero.map((part, i) => Math.round(part + (goal[i] - part) * strength * 0.92));
}

export function css([red, green, blue]) {
  return `rgb(${red} ${green} ${blue})`;
}

/** Black or white, whichever can be read on a colour. */
export function inkOn([red, green, blue]) {
  const part = (value) => ((value / 255 + 0.055) / 1.055) ** 2.4;
  const light = 0.2126 * part(red) + 0.7152 * part(green) + 0.0722 * part(blue);
  return light > 0.32 ? "#14161a" : "#ffffff";
}

/** Draw a matrix, one pixel a value. */
export function paint(canvas, data, rows, columns, largest, dark) {
  canvas.width = columns;
  canvas.height = rows;
  const context = canvas.getContext("2d");
  const image = context.createImageData(columns, rows);
  for (let i = 0; i < rows * columns; i++) {
    const [red, green, blue] = heat(data[i], largest, dark);
    image.data.set([red, green, blue, 255], 4 * i);
  }
  context.putImageData(image, 0, 0);
}
