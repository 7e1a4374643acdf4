/** A part of the time that charts show, in seconds since 1970. */
export interface TimeWindow {
  readonly from: number;
  readonly to: number;
}

/** Share of a window by which a key moves it. */
const MOVE = 0.25;
/** Factor of the length of a window for a key that zooms. */
const ZOOM = 2;
/** Least length of a window, in steps of the chart. */
const LEAST_STEPS = 4;

/**
 * Returns the window after a key of a chart, and null for the whole range.
 * Returns undefined if the key does nothing.
 */
export function windowAfterKey(
  key: string,
  current: TimeWindow | null,
  whole: TimeWindow,
  stepSeconds: number,
): TimeWindow | null | undefined {
  const { from, to } = current ?? whole;
  switch (key) {
    case '+':
    case '=':
      return resized({ from, to }, (to - from) / ZOOM, whole, stepSeconds);
    case '-':
      return current === null ? undefined : resized(current, (to - from) * ZOOM, whole, stepSeconds);
    case 'ArrowLeft':
      return current === null ? undefined : moved(current, -MOVE * (to - from), whole);
    case 'ArrowRight':
      return current === null ? undefined : moved(current, MOVE * (to - from), whole);
    case 'Escape':
      return current === null ? undefined : null;
    default:
      return undefined;
  }
}

/** Returns a selected window within `whole`, at least some steps long; null if it has the whole range. */
export function selectedWindow(selected: TimeWindow, whole: TimeWindow, stepSeconds: number): TimeWindow | null {
  return resized(selected, selected.to - selected.from, whole, stepSeconds);
}

/** Returns a window of another length with the same middle, within `whole`. */
function resized(
  { from, to }: TimeWindow,
  lengthSeconds: number,
  whole: TimeWindow,
  stepSeconds: number,
): TimeWindow | null {
  const length = Math.max(lengthSeconds, LEAST_STEPS * stepSeconds);
  if (length >= whole.to - whole.from) return null;
  const begin = (from + to - length) / 2;
  return moved({ from: begin, to: begin + length }, 0, whole);
}

/** Returns the window later by `seconds`, and not outside of `whole`. */
function moved({ from, to }: TimeWindow, seconds: number, whole: TimeWindow): TimeWindow {
  const length = to - from;
  const begin = Math.max(whole.from, Math.min(whole.to - length, from + seconds));
  return { from: begin, to: begin + length };
}
