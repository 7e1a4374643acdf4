import type { CallError } from '../runtime/protocol.ts';

/** The user's code could not be loaded or initialized: every call that waited for it gets this as its outcome. */
export class CodeFailure extends Error {
  override readonly name = 'CodeFailure';
  readonly error: CallError;

  constructor(error: CallError) {
    super(error.message);
    this.error = error;
  }
}
