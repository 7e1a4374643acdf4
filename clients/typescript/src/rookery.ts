import { Agents } from './agents.ts';
import { Calls } from './calls.ts';
import { Code } from './code.ts';
import { type AnswerOf, type CallOptions, Connection, type OperationName, type RookeryOptions } from './connection.ts';
import { Events } from './events.ts';
import { Functions } from './functions.ts';
import { Jobs } from './jobs.ts';
import { Sandboxes } from './sandboxes.ts';
import { Secrets } from './secrets.ts';

/** Client of a Rookery service. It reuses connections; idle connections do not keep the process alive. */
export class Rookery {
  readonly agents: Agents;
  readonly sandboxes: Sandboxes;
  readonly functions: Functions;
  readonly jobs: Jobs;
  readonly calls: Calls;
  readonly secrets: Secrets;
  readonly events: Events;
  readonly code: Code;
  readonly #connection: Connection;

  constructor(options: RookeryOptions = {}) {
    this.#connection = new Connection(options, process.env);
    this.code = new Code(this.#connection);
    this.agents = new Agents(this.#connection, this.code);
    this.sandboxes = new Sandboxes(this.#connection);
    this.functions = new Functions(this.#connection, this.code);
    this.jobs = new Jobs(this.#connection, this.code);
    this.calls = new Calls(this.#connection);
    this.secrets = new Secrets(this.#connection);
    this.events = new Events(this.#connection);
  }

  /** Sends any operation of openapi/rookery.json by its id and returns the JSON of the answer. */
  async call<N extends OperationName>(name: N, options: CallOptions<N> = {}): Promise<AnswerOf<N>> {
    return await this.#connection.call(name, options);
  }

  /** Closes all open connections. */
  close(): void {
    this.#connection.close();
  }

  [Symbol.dispose](): void {
    this.close();
  }
}
