/** A flaky test that is not repaired yet. The test runs and is reported, but does not fail a run. */
export interface Quarantined {
  readonly file: string;
  /** The full title as reports show it. */
  readonly title: string;
  readonly reason: string;
}

/** Seen once in some hundred runs. The driver could wait for the event `oom` of Docker. */
const OOM_LATE = 'Docker 20.10 sometimes reports the end of a container without its lack of memory';

/** Quarantined tests, five at most. */
export const QUARANTINE: readonly Quarantined[] = [
  {
    file: 'test/sandbox/docker.test.ts',
    title:
      'with a docker daemon the docker driver code in a sandbox a handler that exceeds the memory ends only its own sandbox, which reports the reason',
    reason: OOM_LATE,
  },
  {
    file: 'test/sandbox/ordinary-user.test.ts',
    title: 'for an ordinary user who may use docker docker.test.ts passes',
    reason: OOM_LATE,
  },
];
export const MAX_QUARANTINED = 5;
