/** A flaky test that is not repaired yet. The test runs and is reported, but does not fail a run. */
export interface Quarantined {
  readonly file: string;
  /** The full title as reports show it. */
  readonly title: string;
  readonly reason: string;
}

/** Quarantined tests, five at most. */
export const QUARANTINE: readonly Quarantined[] = [];
export const MAX_QUARANTINED = 5;
