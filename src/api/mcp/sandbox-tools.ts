import { constants } from 'node:os';
import { Readable } from 'node:stream';
import type { AgentInstances } from '../../agents/contract.ts';
import type { ExecutorDefaults } from '../../core/agent.ts';
import { DEFAULT_SECONDS, readE2bCreate } from '../../core/e2b.ts';
import { invalidRequest } from '../../core/error.ts';
import type { Instance } from '../../core/instance.ts';
import type { JsonObject } from '../../core/json.ts';
import { LIMITS } from '../../core/limits.ts';
import type { Access } from '../../http/access/credentials.ts';
import { timeoutSignal } from '../../lib/deadline.ts';
import { onAbort } from '../../lib/linked-signal.ts';
import type { ProcessStream, SandboxAccess } from '../../sandbox/access.ts';
import { isImageInterpreter, startImageInterpreter } from '../../templates/image-interpreter.ts';
import { DEFAULT_TEMPLATE, INTERPRETER } from '../../templates/templates.ts';
import { isVisible, sandboxMissing } from '../e2b/answers.ts';
import { agentIdOf, sandboxIdOf } from '../e2b/sandboxes.ts';
import { resolveTemplate, sandboxSpec, type TemplateSources } from '../e2b/specs.ts';
import { nameOf } from '../envd/entries.ts';
import { BoundedText } from './bounded-text.ts';
import { runCell } from './run-code.ts';
import { type Caller, failedResult, type Tool, type ToolResult, textResult, valueResult } from './tool.ts';

export interface SandboxToolsOptions {
  readonly instances: Pick<AgentInstances, 'create' | 'delete' | 'find' | 'access'>;
  readonly executors: ExecutorDefaults;
  /** The sources of sandboxes in addition to the templates of the service. */
  readonly sources: TemplateSources;
  /** Domain of host names of sandboxes, with or without a port; null: sandboxes have no host names. */
  readonly domain: string | null;
}

/** A tool for sandboxes, with the right that it needs. */
export interface SandboxTool extends Tool {
  readonly access: Access;
}

/** The default account of a sandbox, with its home. */
const USER = { user: '' } as const;
/** Time to kill a command whose caller has disconnected. */
const KILL_MS = 10_000;
const RUN_SECONDS = { default: 60, max: 3600 };
const ID = { type: 'string', description: 'The id that sandbox_create returned.' };
const PATH = { type: 'string', description: 'A path in the sandbox; a relative one is below /home/user.' };
const SECONDS = { type: 'integer', minimum: 1, maximum: RUN_SECONDS.max };
const VARIABLES = { type: 'object', additionalProperties: { type: 'string' } };

/** Returns the tools for sandboxes. They are the sandboxes of the E2B protocol, of the caller's tenant. */
export function sandboxTools(options: SandboxToolsOptions): readonly SandboxTool[] {
  return [...lifeTools(options), ...commandTools(options), ...fileTools(options)];
}

function lifeTools(options: SandboxToolsOptions): readonly SandboxTool[] {
  const { instances, executors, domain, sources } = options;
  return [
    {
      name: 'sandbox_create',
      access: 'write',
      description:
        'Creates a sandbox: an isolated Linux environment with its own files and processes. It ends by itself after `timeout` seconds.',
      inputSchema: inputOf(
        {
          timeout: { type: 'integer', minimum: 1, description: `Seconds; default ${DEFAULT_SECONDS}.` },
          template: {
            type: 'string',
            description: `Default ${DEFAULT_TEMPLATE}; ${INTERPRETER.template} has the interpreter of sandbox_run_code. Also an image of the Docker daemon, if there is one.`,
          },
          envs: { ...VARIABLES, description: 'Environment variables of all commands.' },
        },
        [],
      ),
      run: async ({ timeout, template = DEFAULT_TEMPLATE, envs = {} }, { tenant }) => {
        const wanted = readE2bCreate({ templateID: template, timeout, envVars: envs });
        const sandbox = {
          template: await resolveTemplate(sources, tenant, wanted.templateID),
          ...{ env: wanted.envVars, labels: {}, ttlSeconds: wanted.timeout ?? DEFAULT_SECONDS },
          onExpiry: 'delete',
        } as const;
        const spec = sandboxSpec(sandbox, tenant, executors);
        const { id } = await instances.create({ spec });
        return valueResult({ sandbox_id: sandboxIdOf(id) });
      },
    },
    {
      name: 'sandbox_kill',
      access: 'write',
      description: 'Ends a sandbox with all of its processes and files.',
      inputSchema: inputOf({ sandbox_id: ID }),
      run: async (input, { tenant }) => {
        const { id } = await findSandbox(options, input, tenant);
        await instances.delete(tenant, id, 0);
        return textResult(`Sandbox ${sandboxIdOf(id)} was killed.`);
      },
    },
    {
      name: 'sandbox_port_url',
      access: 'read',
      description: 'Returns the URL of a TCP port on which a program in the sandbox listens with HTTP.',
      inputSchema: inputOf({ sandbox_id: ID, port: { type: 'integer', minimum: 1, maximum: 65_535 } }),
      run: async (input, { tenant, origin }) => {
        const { id } = await findSandbox(options, input, tenant);
        const port = input.port as number;
        if (domain !== null)
          return valueResult({ url: `${origin.split('//')[0]}//${port}-${sandboxIdOf(id)}.${domain}` });
        return valueResult({ url: `${origin}/serverless/v1/http/?instance=${id}&port=${port}` });
      },
    },
  ];
}

function commandTools(options: SandboxToolsOptions): readonly SandboxTool[] {
  return [
    {
      name: 'sandbox_run',
      access: 'write',
      description: 'Runs a command in a sandbox with bash, in /home/user, and waits for its end.',
      inputSchema: inputOf(
        {
          sandbox_id: ID,
          command: { type: 'string', minLength: 1, description: 'A command line for bash.' },
          cwd: { type: 'string', description: 'The working directory; default /home/user.' },
          envs: { ...VARIABLES, description: 'Environment variables of this command.' },
          timeout: { ...SECONDS, description: `Seconds after which it is killed; default ${RUN_SECONDS.default}.` },
        },
        ['sandbox_id', 'command'],
      ),
      run: async (input, caller) => runCommand(await accessOf(options, input, caller.tenant), input, caller),
    },
    {
      name: 'sandbox_run_code',
      access: 'write',
      description: `Runs a cell of code in a sandbox with the template ${INTERPRETER.template}. Names stay for later cells.`,
      inputSchema: inputOf(
        {
          sandbox_id: ID,
          code: { type: 'string' },
          language: { type: 'string', description: 'python (default), or javascript.' },
          timeout: { ...SECONDS, description: `Seconds; default ${RUN_SECONDS.default}.` },
        },
        ['sandbox_id', 'code'],
      ),
      run: async (input, { tenant, signal }) => {
        const { spec } = await findSandbox(options, input, tenant);
        const isOfImage = isImageInterpreter(spec, INTERPRETER.port);
        if ((spec.built?.base ?? spec.template) !== INTERPRETER.template && !isOfImage) {
          throw invalidRequest(`The sandbox has no interpreter: create it with template ${INTERPRETER.template}.`);
        }
        const access = await accessOf(options, input, tenant);
        if (isOfImage) await startImageInterpreter(access, spec, signal);
        const { code, language, timeout = RUN_SECONDS.default } = input;
        const cell = { code: String(code), ...(language === undefined ? {} : { language: String(language) }) };
        return await runCell(access, cell, (timeout as number) * 1000, signal);
      },
    },
  ];
}

function fileTools(options: SandboxToolsOptions): readonly SandboxTool[] {
  const tool = (
    facts: Pick<SandboxTool, 'name' | 'access' | 'description'>,
    more: JsonObject,
    run: (access: SandboxAccess, path: string, input: JsonObject, caller: Caller) => Promise<ToolResult>,
  ): SandboxTool => ({
    ...facts,
    inputSchema: inputOf({ sandbox_id: ID, path: PATH, ...more }),
    run: async (input, caller) => run(await accessOf(options, input, caller.tenant), String(input.path), input, caller),
  });
  const content = { type: 'string', description: 'The whole content, as text.' };
  return [
    tool(
      {
        name: 'sandbox_write_file',
        access: 'write',
        description: 'Writes a text file in a sandbox. Creates missing directories, and replaces the old content.',
      },
      { content },
      async (access, path, input, { signal }) => {
        const bytes = Buffer.from(String(input.content));
        const written = { ...USER, metadata: null };
        const facts = await access.writeInPlace(path, written, Readable.from(bytes, { objectMode: false }), signal);
        return textResult(`Wrote ${bytes.length} bytes to ${facts.path}.`);
      },
    ),
    tool(
      { name: 'sandbox_read_file', access: 'read', description: 'Returns the content of a text file in a sandbox.' },
      {},
      async (access, path, _input, { signal }) => {
        const file = await access.readFile(path, USER, signal);
        const bytes: Buffer[] = [];
        let size = 0;
        for await (const piece of file.read(0, LIMITS.mcpFileBytes + 1) as AsyncIterable<Buffer>) {
          bytes.push(piece);
          size += piece.length;
        }
        if (size > LIMITS.mcpFileBytes) {
          throw invalidRequest(`${path} has more than ${LIMITS.mcpFileBytes} bytes: read a part with sandbox_run.`);
        }
        return textResult(textOf(Buffer.concat(bytes), path));
      },
    ),
    tool(
      { name: 'sandbox_list_files', access: 'read', description: 'Lists a directory of a sandbox.' },
      {},
      async (access, path, _input, { signal }) => {
        const { maxEntries } = LIMITS.fileList;
        const { entries, truncated } = await access.listTree(path, { ...USER, maxDepth: 1, maxEntries }, signal);
        const lines = entries.map(entry => nameOf(shown(entry.path)) + (entry.type === 'directory' ? '/' : ''));
        const files = entries.map(({ path: at, type, sizeBytes }) => ({ path: shown(at), type, size: sizeBytes }));
        return { ...textResult(lines.join('\n')), structuredContent: { entries: files, truncated } };
      },
    ),
  ];
}

function inputOf(properties: JsonObject, required = Object.keys(properties)): JsonObject {
  return { type: 'object', properties, required, additionalProperties: false };
}

/** Returns the agent of a sandbox of the tenant. */
async function findSandbox({ instances }: SandboxToolsOptions, input: JsonObject, tenant: string): Promise<Instance> {
  const sent = String(input.sandbox_id);
  const agentId = agentIdOf(sent);
  const instance = agentId === null ? null : await instances.find(agentId);
  const isTheirs = instance?.spec.tenant === tenant && instance.spec.template !== undefined;
  if (!isTheirs || !isVisible(instance)) throw sandboxMissing(sent);
  return instance;
}

async function accessOf(options: SandboxToolsOptions, input: JsonObject, tenant: string): Promise<SandboxAccess> {
  const { id } = await findSandbox(options, input, tenant);
  return await options.instances.access(tenant, id);
}

/** Runs a command to its end. A caller that disconnects ends it, because no later call can reach it. */
async function runCommand(access: SandboxAccess, input: JsonObject, { signal }: Caller): Promise<ToolResult> {
  const { command, cwd = '', envs = {}, timeout = RUN_SECONDS.default } = input;
  const process = await access.startProcess(
    {
      argv: ['/bin/bash', '-l', '-c', String(command)],
      workingDir: String(cwd),
      env: envs as Record<string, string>,
      user: '',
      terminal: null,
      stdin: false,
      timeLimitMs: (timeout as number) * 1000,
    },
    signal,
  );
  const end = endWith(process, access, signal);
  const [stdout, stderr] = [new BoundedText(LIMITS.mcpOutputBytes), new BoundedText(LIMITS.mcpOutputBytes)];
  try {
    for await (const { kind, data } of process.output) (kind === 'stderr' ? stderr : stdout).add(data);
    const { code, signal: by, timedOut } = await process.ended;
    const outputs = { stdout: stdout.text, stderr: stderr.text };
    const isCut = stdout.isCut || stderr.isCut;
    const exit_code = code ?? 128 + (constants.signals[by as NodeJS.Signals] ?? 0);
    const result = valueResult({ ...outputs, exit_code, ...(isCut && { truncated: true }) });
    if (!timedOut) return result;
    const late = failedResult(`The command was killed: it did not end within ${timeout} s.`);
    return { ...result, content: [...late.content, ...result.content], isError: true };
  } finally {
    end();
    process.close();
  }
}

/** Kills the process when the caller disconnects. Returns the function that stops watching. */
function endWith(process: ProcessStream, access: SandboxAccess, signal: AbortSignal): () => void {
  // `runCommand` reports the failure. Until then, this handler prevents an unhandled rejection.
  process.ended.catch(() => undefined);
  const kill = () => {
    access.signalProcess(process.pid, 'SIGKILL', timeoutSignal(KILL_MS)).catch(() => undefined);
    process.close();
  };
  return onAbort(signal, kill);
}

/** Returns the text of a file. Fails for bytes that are not UTF-8. */
function textOf(bytes: Buffer, path: string): string {
  try {
    return new TextDecoder('utf-8', { fatal: true, ignoreBOM: true }).decode(bytes);
  } catch {
    throw invalidRequest(`${path} is not UTF-8 text: read it with sandbox_run, for example with base64.`);
  }
}

/** Shows bytes that are not UTF-8 as U+FFFD. */
function shown(path: string): string {
  return Buffer.from(path).toString();
}
