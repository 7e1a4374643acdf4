/** Exit codes of the command; `docs/cli.md` explains them. The numbers above 63 are those of BSD's sysexits.h. */
export const EXIT = {
  ok: 0,
  failure: 1,
  usage: 2,
  /** The service cannot be reached. */
  unreachable: 69,
  /** The service refused who asks. */
  refused: 77,
  /** The configuration is wrong. */
  config: 78,
  /** Of `upgrade --check`: there is a newer version. */
  newer: 100,
} as const;

/** Ends the command: one sentence for stderr that says what to do, and the exit code. */
export class CliError extends Error {
  override readonly name = 'CliError';
  readonly exitCode: number;
  /** With which status the service refused; null when it was not asked or did not answer. */
  readonly status: number | null;

  constructor(message: string, exitCode: number = EXIT.failure, status: number | null = null) {
    super(message);
    this.exitCode = exitCode;
    this.status = status;
  }
}

export function usageError(message: string): CliError {
  return new CliError(message, EXIT.usage);
}
