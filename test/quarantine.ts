/** A flaky test that is not repaired yet. The test runs and is reported, but does not fail a run. */
export interface Quarantined {
  readonly file: string;
  /** The full title as reports show it. */
  readonly title: string;
  readonly reason: string;
}

/** Quarantined tests, five at most. */
export const QUARANTINE: readonly Quarantined[] = [
  {
    file: 'src/functions/version-scaler-model.test.ts',
    title: 'VersionScaler: model holds its invariants under random calls, finishes, crashes, limits and time',
    reason:
      'one case in about 1250 (seed -120774745, path 1252:2:1:6:10:10:7:8): an idle instance exceeds its minimum when its session ends',
  },
];
export const MAX_QUARANTINED = 5;
