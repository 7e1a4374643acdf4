import type { IncomingHttpHeaders } from 'node:http';
import type { JsonObject } from '../../core/json.ts';
import type { SandboxAccess } from '../../sandbox/access.ts';
import type { MessageStream } from './message-stream.ts';

/** Defaults of requests without an account or a directory. */
export interface SandboxDefaults {
  /** `''`: the default account of the sandbox. */
  readonly user: string;
  /** `''`: the home of the account. */
  readonly workingDir: string;
}

/** A call of a procedure, with its sandbox. */
export interface Call {
  readonly sandboxId: string;
  readonly access: SandboxAccess;
  /** The user that the request names; `''`: the default user. */
  readonly user: string;
  /** The directory in which processes start that name none; `''`: the home of the user. */
  readonly workingDir: string;
  readonly headers: IncomingHttpHeaders;
  /** `Connect-Timeout-Ms`; 0: no limit. */
  readonly timeoutMs: number;
  /** Aborts when the client disconnects, or after `timeoutMs` where that is not the time of a process. */
  readonly signal: AbortSignal;
}

/** A procedure by its kind of call. All fail with `ConnectError` or `ServiceError`. */
export type Procedure =
  | { readonly kind: 'unary'; readonly run: (message: JsonObject, call: Call) => Promise<object> }
  | {
      readonly kind: 'server-stream';
      /** True when `Connect-Timeout-Ms` is not the time of the stream. */
      readonly hasOwnTimeout?: boolean;
      readonly run: (message: JsonObject, call: Call, stream: MessageStream) => Promise<void>;
    }
  | {
      readonly kind: 'client-stream';
      readonly run: (messages: AsyncIterable<JsonObject>, call: Call) => Promise<object>;
    };

/** Procedures by `<service>/<method>`. */
export type Procedures = Readonly<Record<string, Procedure>>;
