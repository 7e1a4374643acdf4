/** The stored resolutions, each of fixed size. */
export const STEPS = {
  fine: { seconds: 10, points: 360 },
  middle: { seconds: 120, points: 180 },
  coarse: { seconds: 300, points: 288 },
} as const;
export type Resolution = keyof typeof STEPS;
export const RESOLUTIONS = Object.keys(STEPS) as readonly Resolution[];

/** The resolution of each range, and the number of its newest points in the range. */
export const RANGE_POINTS = {
  '15m': { of: 'fine', points: 90 },
  '1h': { of: 'fine', points: 360 },
  '6h': { of: 'middle', points: 180 },
  '24h': { of: 'coarse', points: 288 },
} as const satisfies Readonly<Record<string, { readonly of: Resolution; readonly points: number }>>;
export type HistoryRange = keyof typeof RANGE_POINTS;
export const RANGES = Object.keys(RANGE_POINTS) as readonly HistoryRange[];

/**
 * A series in all resolutions. Each value is stored with its slot number, so missing and old values read
 * as null.
 */
export class SeriesHistory {
  readonly #rings: Readonly<Record<Resolution, Ring>> = {
    fine: ring('fine'),
    middle: ring('middle'),
    coarse: ring('coarse'),
  };

  set(resolution: Resolution, slot: number, value: number): void {
    const { values, slots } = this.#rings[resolution];
    values[slot % values.length] = value;
    slots[slot % values.length] = slot;
  }

  /** Returns the newest `points` values up to the slot `last`, the oldest first. */
  read(resolution: Resolution, last: number, points: number): (number | null)[] {
    const { values, slots } = this.#rings[resolution];
    const first = last - points + 1;
    return Array.from({ length: points }, (_, index) => {
      const at = (first + index) % values.length;
      const value = values[at] as number;
      return slots[at] === first + index && Number.isFinite(value) ? Number(value.toPrecision(6)) : null;
    });
  }
}

interface Ring {
  readonly values: Float32Array;
  readonly slots: Uint32Array;
}

function ring(resolution: Resolution): Ring {
  const { points } = STEPS[resolution];
  return { values: new Float32Array(points), slots: new Uint32Array(points) };
}
