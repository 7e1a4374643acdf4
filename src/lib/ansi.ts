const CODES = {
  ...{ bold: [1, 22], red: [31, 39], green: [32, 39], yellow: [33, 39], grey: [90, 39] },
  ...{ blue: [34, 39], magenta: [35, 39], cyan: [36, 39] },
} as const;

export type Style = keyof typeof CODES;

/** Returns `text` in a style for a terminal. The caller must know that the output is a terminal. */
export function ansi(style: Style, text: string): string {
  const [on, off] = CODES[style];
  return `\u001b[${on}m${text}\u001b[${off}m`;
}
