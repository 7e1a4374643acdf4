import { ServiceError } from '../../core/error.ts';
import { isJsonObject, type JsonObject } from '../../core/json.ts';
import { faultOf } from '../../core/json-schema.ts';
import type { Role } from '../../http/access/credentials.ts';

/** The caller of a tool. */
export interface Caller {
  readonly tenant: string;
  readonly role: Role;
  readonly traceId: string;
  /** The value of the request's `traceparent`. */
  readonly traceparent: string | undefined;
  /** Scheme and host by which the caller reached the service, such as `http://localhost:31220`. */
  readonly origin: string;
  /** Aborts when the caller disconnects. */
  readonly signal: AbortSignal;
}

/** The description of a tool, as clients see it. */
export interface ToolFacts {
  readonly name: string;
  readonly description: string;
  readonly inputSchema: JsonObject;
}

export interface Tool extends ToolFacts {
  /** Runs the tool. Fails with a `ServiceError`, whose message the model reads. */
  run(input: JsonObject, caller: Caller): Promise<ToolResult>;
}

export type Content =
  | { readonly type: 'text'; readonly text: string }
  | { readonly type: 'image'; readonly data: string; readonly mimeType: string };

export interface ToolResult {
  readonly content: readonly Content[];
  readonly structuredContent?: JsonObject;
  readonly isError?: boolean;
}

/** Returns the result of a value: a text as it is, other values as JSON. */
export function valueResult(value: unknown): ToolResult {
  const text = typeof value === 'string' ? value : JSON.stringify(value);
  return { ...textResult(text), ...(isJsonObject(value) && { structuredContent: value }) };
}

export function textResult(text: string): ToolResult {
  return { content: [{ type: 'text', text }] };
}

/** Returns the result of a failure, which the model reads. */
export function failedResult(text: string): ToolResult {
  return { ...textResult(text), isError: true };
}

/** Runs a tool whose input is checked first. Every failure is a result. `onFault` gets unexpected errors. */
export async function runTool(
  tool: Tool,
  input: JsonObject,
  caller: Caller,
  onFault: (error: unknown) => void,
): Promise<ToolResult> {
  const fault = faultOf(tool.inputSchema, input, 'arguments');
  if (fault !== null) return failedResult(`The arguments do not fit the inputSchema of the tool: ${fault}`);
  try {
    return await tool.run(input, caller);
  } catch (error) {
    if (error instanceof ServiceError) return failedResult(error.message);
    onFault(error);
    return failedResult(`internal error: the log has it under trace id ${caller.traceId}`);
  }
}
