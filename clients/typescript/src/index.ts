/** The public exports of the TypeScript client, npm package `@rookery/client`. */
export { Agent, type InvokeOptions, type LogOptions } from './agent.ts';
export type { Agents, CreateOptions, GetOrCreateOptions } from './agents.ts';
export type { CallQuery, Calls, FollowedCallQuery, RecordedTarget } from './calls.ts';
export type { Code } from './code.ts';
export { CommandFailed, CommandResult } from './command-result.ts';
export type { AnswerOf, CallOptions, OperationName, RequestOptions, RookeryOptions } from './connection.ts';
export { RookeryError, type RookeryErrorDetails } from './error.ts';
export type { EventOptions, Events, RookeryEvent } from './events.ts';
export {
  Conflict,
  ExecutionFailed,
  InternalError,
  InvalidRequest,
  NotFound,
  PermissionDenied,
  RateLimited,
  Timeout,
  Unauthenticated,
  Unavailable,
} from './failures.ts';
export { type FileChange, type FileOptions, type Files, FileWatch, type WatchOptions } from './files.ts';
export {
  AsyncCall,
  type CallFunctionOptions,
  FunctionHandle,
  type Functions,
  type MapOptions,
  type RegisterOptions,
} from './functions.ts';
export type * as wire from './generated.ts';
export type { Jobs, SubmitOptions } from './jobs.ts';
export type { Processes, ProcessName } from './processes.ts';
export { Rookery } from './rookery.ts';
export type { Environment, RunOptions } from './runs.ts';
export {
  CodeRun,
  type ForkOptions,
  type RunCodeOptions,
  Sandbox,
  type Sandboxes,
  type SandboxOptions,
} from './sandboxes.ts';
export type { Secrets } from './secrets.ts';
export { type Output, Terminal, type TerminalOptions } from './terminal.ts';
