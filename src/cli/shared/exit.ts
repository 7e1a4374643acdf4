/**
 * Exit codes of the command; `docs/reference/cli.md` explains them. Numbers above 63 are those of BSD's
 * sysexits.h, except 100.
 */
export const EXIT = {
  ok: 0,
  failure: 1,
  usage: 2,
  /** The service cannot be reached. */
  unreachable: 69,
  /** The service refused the caller. */
  refused: 77,
  /** The configuration is wrong. */
  config: 78,
  /** Result of `upgrade --check`: a newer version exists. */
  newer: 100,
} as const;

/** Ends the command with an exit code. The message for stderr is one sentence that says what to do. */
export class CliError extends Error {
  override readonly name = 'CliError';
  readonly exitCode: number;
  /** The status with which the service refused; null when no request was sent or answered. */
  readonly status: number | null;
  /** The trace id of the request, when the service answered it. */
  readonly traceId: string | null;

  constructor(
    message: string,
    exitCode: number = EXIT.failure,
    status: number | null = null,
    traceId: string | null = null,
  ) {
    super(message);
    this.exitCode = exitCode;
    this.status = status;
    this.traceId = traceId;
  }
}

export function usageError(message: string): CliError {
  return new CliError(message, EXIT.usage);
}
