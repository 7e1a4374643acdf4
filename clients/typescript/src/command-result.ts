import { ExecutionFailed } from './failures.ts';
import type { AgentExecResponse } from './generated.ts';

/** Most characters of `stderr` in the message of a `CommandFailed`. */
const MESSAGE_CHARACTERS = 2000;

/** Result of a command that has ended: the fields of the answer. */
export class CommandResult implements AgentExecResponse {
  /** Exit code; -1 if the time limit ended the command. */
  declare readonly returncode: number;
  declare readonly stdout: string;
  declare readonly stderr: string;
  /** True if the service cut the output. */
  declare readonly truncated: boolean;
  /** True if the time limit ended the command. */
  declare readonly timed_out: boolean;
  declare readonly warnings?: string[];

  /** @internal */
  constructor(answer: AgentExecResponse) {
    Object.assign(this, answer);
  }

  /** Returns the result itself. Fails with `CommandFailed` if the exit code is not 0. */
  check(): this {
    if (this.returncode !== 0) throw new CommandFailed(this);
    return this;
  }
}

/** A command ended with another exit code than 0, which `CommandResult.check` reports. */
export class CommandFailed extends ExecutionFailed {
  readonly result: CommandResult;

  /** @internal */
  constructor(result: CommandResult) {
    const what = result.timed_out
      ? 'the time limit ended the command'
      : `the command ended with exit code ${result.returncode}`;
    const said = result.stderr.trim();
    const end = said.length > MESSAGE_CHARACTERS ? `…${said.slice(-MESSAGE_CHARACTERS)}` : said;
    super(end === '' ? what : `${what}: ${end}`, { status: 200 });
    this.result = result;
  }

  /** Exit code of the command; -1 if the time limit ended it. */
  get returncode(): number {
    return this.result.returncode;
  }

  /** Whole error output of the command, as far as the service returned it. */
  get stderr(): string {
    return this.result.stderr;
  }
}
