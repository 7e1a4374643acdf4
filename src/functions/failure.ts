import type { CallError } from '../runtime/protocol.ts';

/**
 * Error of user code that could not be loaded or initialized. Each call that waited for the code gets it as
 * its outcome.
 */
export class CodeFailure extends Error {
  override readonly name = 'CodeFailure';
  readonly error: CallError;

  constructor(error: CallError) {
    super(error.message);
    this.error = error;
  }
}
