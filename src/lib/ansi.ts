const CODES = {
  ...{ bold: [1, 22], red: [31, 39], green: [32, 39], yellow: [33, 39], grey: [90, 39] },
  ...{ blue: [34, 39], magenta: [35, 39], cyan: [36, 39] },
} as const;

export type Style = keyof typeof CODES;

/** `text` in a style for a terminal. Whether it goes to one is for the caller to know. */
export function ansi(style: Style, text: string): string {
  const [on, off] = CODES[style];
  return `\u001b[${on}m${text}\u001b[${off}m`;
}
