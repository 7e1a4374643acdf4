import { createHash } from 'node:crypto';
import { LRUCache } from 'lru-cache';
import { invalidRequest } from '../../core/error.ts';
import { hasInputSchema } from '../../core/function.ts';
import { PLAIN_CALL } from '../../core/function-call.ts';
import type { JsonObject } from '../../core/json.ts';
import { formatUrn, LATEST } from '../../core/urn.ts';
import type { FunctionInvoker } from '../../functions/function-invoker.ts';
import { exceededBound, isJson } from '../../lib/json-bytes.ts';
import { newRequestId } from '../../lib/random-ids.ts';
import type { FunctionRegistry } from '../../registry/functions.ts';
import { checkedOutcome } from '../../runtime/call.ts';
import { continueTrace, formatTraceparent } from '../../telemetry/traceparent.ts';
import { type Caller, failedResult, type Tool, type ToolFacts, type ToolResult, valueResult } from './tool.ts';

export interface FunctionToolsOptions {
  readonly functions: Pick<FunctionInvoker, 'invoke'>;
  readonly registry: Pick<FunctionRegistry, 'latestByName' | 'lastChange'>;
  /** The business part of URNs. */
  readonly business: string;
}

/** The fields of a function's record that decide whether it is a tool. */
interface FunctionFacts {
  readonly name: string;
  readonly kind: string;
  readonly description: string;
  readonly inputSchema?: JsonObject;
}

interface NamedTool extends ToolFacts {
  /** Registered name, `0@<service>@<function>`. */
  readonly functionName: string;
}

interface Kept {
  readonly tools: ReadonlyMap<string, NamedTool>;
  readonly chars: number;
  readonly lastChange: number;
}

const MAX_NAME_CHARS = 64;
const HASH_CHARS = 8;
const DEFAULT_SERVICE = 'default';
/** Service whose tools would have the names of the tools for sandboxes. */
const SANDBOX_SERVICE = 'sandbox';
const PAGE = 500;
const MAX_KEPT_CHARS = 16 * 1024 * 1024;

/**
 * Returns the name of a function's tool: `<service>_<function>`, or `<function>` in the service `default`.
 * A name that is too long, or belongs to a tool for sandboxes, ends with a part of a hash. Names of services
 * and functions have no underscore, so two functions have two names.
 */
export function toolNameOf(functionName: string): string {
  const [, service = '', short = ''] = functionName.split('@');
  const whole = service === DEFAULT_SERVICE ? short : `${service}_${short}`;
  if (whole.length <= MAX_NAME_CHARS && service !== SANDBOX_SERVICE) return whole;
  const hash = createHash('sha256').update(functionName).digest('hex').slice(0, HASH_CHARS);
  return `${whole.slice(0, MAX_NAME_CHARS - HASH_CHARS - 1)}_${hash}`;
}

/** The functions of tenants as tools: those of kind `faas` with a description and an `inputSchema`. */
export class FunctionTools {
  readonly #options: FunctionToolsOptions;
  readonly #kept = new LRUCache<string, Kept>({ maxSize: MAX_KEPT_CHARS, sizeCalculation: ({ chars }) => chars });

  constructor(options: FunctionToolsOptions) {
    this.#options = options;
  }

  /** Returns the tools of a tenant by name, as they are now. */
  async of(tenant: string): Promise<ReadonlyMap<string, ToolFacts>> {
    return await this.#read(tenant);
  }

  /** Returns the registered name of the function that is this tool. null: there is none. */
  async functionOf(tenant: string, name: string): Promise<string | null> {
    return (await this.#read(tenant)).get(name)?.functionName ?? null;
  }

  /** Returns the tool with this name. null: there is none. */
  async find(tenant: string, name: string): Promise<Tool | null> {
    const facts = (await this.#read(tenant)).get(name);
    if (facts === undefined) return null;
    return { ...facts, run: (input, caller) => this.#call(facts.functionName, input, caller) };
  }

  async #read(tenant: string): Promise<ReadonlyMap<string, NamedTool>> {
    const { registry } = this.#options;
    // Read before the records: a change in between makes the tools newer than their mark, never older.
    const lastChange = await registry.lastChange(tenant);
    const kept = this.#kept.get(tenant);
    if (kept?.lastChange === lastChange) return kept.tools;
    const tools = new Map<string, NamedTool>();
    let chars = 1;
    let after = '';
    for (;;) {
      const records = await registry.latestByName(tenant, after, PAGE);
      for (const record of records) {
        const facts = JSON.parse(record) as FunctionFacts;
        after = facts.name;
        const tool = toolOf(facts);
        if (tool === null || tools.has(tool.name)) continue;
        tools.set(tool.name, tool);
        chars += record.length;
      }
      if (records.length < PAGE) break;
    }
    this.#kept.set(tenant, { tools, chars, lastChange });
    return tools;
  }

  async #call(name: string, input: JsonObject, caller: Caller): Promise<ToolResult> {
    const { functions, business } = this.#options;
    const { tenant, traceId, traceparent, signal } = caller;
    const urn = formatUrn({ business, tenant, name, version: LATEST });
    const body = Buffer.from(JSON.stringify(input));
    if (!isJson(body)) throw invalidRequest(`the arguments ${exceededBound(body) ?? 'are not JSON'}`);
    const header = {
      traceId,
      traceparent: formatTraceparent(continueTrace(traceparent, traceId)),
      requestId: newRequestId(),
      headers: {},
    };
    const origin = { mode: 'sync' as const, caller: '', traceparent };
    const call = { header, body, signal };
    const result = await functions.invoke({ urn, tenant, headers: PLAIN_CALL, call, origin });
    const outcome = checkedOutcome(result.outcome);
    if (!outcome.ok) return failedResult(outcome.text);
    return valueResult(JSON.parse(outcome.data.toString()));
  }
}

function toolOf({ name, kind, description, inputSchema = {} }: FunctionFacts): NamedTool | null {
  if (kind !== 'faas' || description === '' || !hasInputSchema({ inputSchema })) return null;
  const { type = 'object' } = inputSchema;
  // Arguments are an object in the protocol, and clients refuse a list with another type.
  if (type !== 'object') return null;
  return { name: toolNameOf(name), description, inputSchema: { ...inputSchema, type }, functionName: name };
}
