import { CliError } from '../shared/exit.ts';

/** Matches failures that user code raised in a call or while it was loaded. */
const OF_CODE = /\bFail to run user call handler\b|\bcode[=":\s]+400[12]\b/;

/** Adds to a failed call the command that prints the traceback, and the trace id of its lines. */
export async function withTraceback<T>(command: string, call: () => Promise<T>): Promise<T> {
  try {
    return await call();
  } catch (error) {
    if (!(error instanceof CliError) || !OF_CODE.test(error.message)) throw error;
    const { message, exitCode, status, traceId } = error;
    const trace = traceId === null ? '' : ` (trace id ${traceId})`;
    throw new CliError(`${message}\nThe traceback: ${command}${trace}`, exitCode, status, traceId);
  }
}
