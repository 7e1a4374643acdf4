import { readFile } from 'node:fs/promises';
import { type IncomingMessage, type RequestOptions, request } from 'node:http';
import { failedPrecondition, messageOf, type ServiceError, unavailable } from '../../core/error.ts';
import { decodeAnswer, encodeCall, faultIn, XmlRpcFault, type XmlRpcValue } from './xml-rpc.ts';

const CALL_TIMEOUT_MS = 5_000;
/** Maximum size of an answer: enough for some ten thousand programs. */
const MAX_ANSWER_BYTES = 16 * 1024 * 1024;

/** The faults of supervisord that this driver distinguishes (supervisor/xmlrpc.py). */
export const FAULTS = {
  shutdown: 6,
  badName: 10,
  notExecutable: 21,
  notRunning: 70,
  alreadyAdded: 90,
  stillRunning: 91,
  cannotReread: 92,
} as const;

/** The report of supervisord about a program. */
export interface ProgramInfo {
  readonly name: string;
  /** State name: `RUNNING`, `EXITED`, `BACKOFF`, … */
  readonly state: string;
  readonly pid: number;
  readonly exitStatus: number;
  /** The reason the program could not be started; `''` when it could. */
  readonly spawnError: string;
}

/**
 * The operator's supervisord, over XML-RPC. Every call is bounded.
 * Fails with `unavailable` when no answer arrives. Fails with `failed_precondition` when supervisord refuses
 * the service or its configuration, and with an `XmlRpcFault` where a method says so.
 */
export class Supervisord {
  readonly #address: () => Promise<SupervisordAddress>;

  /** Creates the client. `address` is called before each request, because credentials may change. */
  constructor(address: () => Promise<SupervisordAddress>) {
    this.#address = address;
  }

  async pid(): Promise<number> {
    return (await this.#call('supervisor.getPID')) as number;
  }

  /** Makes supervisord read its configuration again, without starting or stopping programs. */
  async reloadConfig(): Promise<void> {
    try {
      await this.#call('supervisor.reloadConfig');
    } catch (error) {
      if (!isFault(error, FAULTS.cannotReread)) throw error;
      throw failedPrecondition(`supervisord cannot read its configuration: ${messageOf(error)}`, { cause: error });
    }
  }

  /**
   * Adds a program from the configuration and starts it in one exchange. Returns the pid of supervisord, its
   * parent.
   * Fails with the first `XmlRpcFault`.
   */
  async addAndStart(program: string): Promise<number> {
    const calls = [
      { methodName: 'supervisor.addProcessGroup', params: [program] },
      { methodName: 'supervisor.startProcess', params: [program, false] },
      { methodName: 'supervisor.getPID', params: [] },
    ];
    const [added, started, pid] = (await this.#call('system.multicall', [calls])) as readonly XmlRpcValue[];
    const refused = faultIn(added);
    // An operator's `supervisorctl update` may have come first.
    if (refused !== null && refused.code !== FAULTS.alreadyAdded) throw refused;
    const failed = faultIn(started);
    if (failed !== null) throw failed;
    return Number(pid);
  }

  /**
   * Stops a program; supervisord kills it when that takes too long. A missing or stopped program counts as
   * success.
   */
  async stop(program: string): Promise<void> {
    await this.#call('supervisor.stopProcess', [program, false]).catch(error => {
      if (!isFault(error, FAULTS.badName) && !isFault(error, FAULTS.notRunning)) throw error;
    });
  }

  /** Makes supervisord forget a stopped program. Returns false while it runs; true if it does not exist. */
  async removeGroup(program: string): Promise<boolean> {
    try {
      await this.#call('supervisor.removeProcessGroup', [program]);
    } catch (error) {
      if (isFault(error, FAULTS.stillRunning)) return false;
      if (!isFault(error, FAULTS.badName)) throw error;
    }
    return true;
  }

  async programs(): Promise<readonly ProgramInfo[]> {
    const infos = (await this.#call('supervisor.getAllProcessInfo')) as readonly XmlRpcValue[];
    return infos.map(toInfo);
  }

  /** Returns the report about a program; null when it does not exist. */
  async program(name: string): Promise<ProgramInfo | null> {
    try {
      return toInfo(await this.#call('supervisor.getProcessInfo', [name]));
    } catch (error) {
      if (isFault(error, FAULTS.badName)) return null;
      throw error;
    }
  }

  async #call(method: string, params: readonly XmlRpcValue[] = []): Promise<XmlRpcValue> {
    const address = await this.#address();
    const { status, text } = await post(address, encodeCall(method, params));
    if (status === 401) throw refusedCredentials(address);
    if (status !== 200) {
      throw failedPrecondition(`${address.shown} answers with HTTP ${status}: expected the XML-RPC of a supervisord`);
    }
    try {
      return decodeAnswer(text);
    } catch (error) {
      if (isFault(error, FAULTS.shutdown)) throw unavailable('supervisord is shutting down', { cause: error });
      if (error instanceof XmlRpcFault) throw error;
      throw unavailable(`supervisord at ${address.shown}: ${messageOf(error)}`, { cause: error });
    }
  }
}

export function isFault(error: unknown, code: number): boolean {
  return error instanceof XmlRpcFault && error.code === code;
}

function toInfo(value: XmlRpcValue): ProgramInfo {
  const info = value as { readonly [name: string]: XmlRpcValue };
  return {
    name: String(info.name),
    state: String(info.statename),
    pid: Number(info.pid),
    exitStatus: Number(info.exitstatus),
    spawnError: String(info.spawnerr ?? ''),
  };
}

function post(address: SupervisordAddress, body: string): Promise<{ status: number; text: string }> {
  const options: RequestOptions = {
    ...address.connection,
    path: '/RPC2',
    method: 'POST',
    agent: false,
    timeout: CALL_TIMEOUT_MS,
    signal: AbortSignal.timeout(CALL_TIMEOUT_MS),
    headers: { 'content-type': 'text/xml', 'content-length': Buffer.byteLength(body) },
    ...(address.credentials === null ? {} : { auth: address.credentials }),
  };
  return new Promise((resolve, reject) => {
    const fail = (error: Error) => reject(noAnswer(address, error));
    const sent = request(options, answer => {
      readAll(answer).then(text => resolve({ status: answer.statusCode ?? 0, text }), fail);
    });
    sent.on('error', fail);
    sent.end(body);
  });
}

async function readAll(answer: IncomingMessage): Promise<string> {
  const chunks: Buffer[] = [];
  let bytes = 0;
  for await (const chunk of answer as AsyncIterable<Buffer>) {
    bytes += chunk.length;
    if (bytes > MAX_ANSWER_BYTES) throw new Error(`an answer of more than ${MAX_ANSWER_BYTES} bytes`);
    chunks.push(chunk);
  }
  return Buffer.concat(chunks).toString('utf8');
}

function noAnswer(address: SupervisordAddress, error: Error): ServiceError {
  const why = error.name === 'TimeoutError' ? `no answer within ${CALL_TIMEOUT_MS / 1000} s` : messageOf(error);
  return unavailable(
    `supervisord does not answer at ${address.shown} (${why}); start it, or set supervisor.url to where it is`,
    { cause: error },
  );
}

function refusedCredentials(address: SupervisordAddress): ServiceError {
  const what = address.credentials === null ? 'asks for credentials' : 'refuses the credentials';
  return failedPrecondition(
    `supervisord at ${address.shown} ${what}: set supervisor.credentialsFile to a file with user:password as in its configuration`,
  );
}

/** The address of a supervisord. */
export interface SupervisordAddress {
  /** The address without credentials, for messages. */
  readonly shown: string;
  readonly connection: { readonly socketPath: string } | { readonly host: string; readonly port: number };
  /** Credentials as `user:password`; null when none are configured. */
  readonly credentials: string | null;
}

const DEFAULT_PORT = 9001;
const SHAPES = 'unix:///path/of/the/socket, http://host:port or http://user:password@host:port';

/**
 * Reads `supervisor.url` and, if set, `supervisor.credentialsFile` (one line, `user:password`).
 * Fails with `failed_precondition`.
 */
export async function readAddress(url: string, credentialsFile: string | null): Promise<SupervisordAddress> {
  const address = parseAddress(url);
  if (credentialsFile === null) return address;
  if (address.credentials !== null) {
    throw failedPrecondition(
      'supervisor.url names credentials and supervisor.credentialsFile too: expected one of them',
    );
  }
  return { ...address, credentials: await readCredentials(credentialsFile) };
}

function parseAddress(url: string): SupervisordAddress {
  if (url.startsWith('unix://')) {
    const socketPath = url.slice('unix://'.length);
    if (!socketPath.startsWith('/')) throw badUrl(url);
    return { shown: url, connection: { socketPath }, credentials: null };
  }
  const parsed = URL.canParse(url) ? new URL(url) : null;
  // The message leaves out the text, which may contain a password.
  if (parsed === null) throw badUrl('what is no URL');
  if (parsed.protocol !== 'http:' || parsed.hostname === '') throw badUrl(`${parsed.protocol}//${parsed.host}`);
  const port = parsed.port === '' ? DEFAULT_PORT : Number(parsed.port);
  return {
    shown: `http://${parsed.hostname}:${port}`,
    connection: { host: parsed.hostname.replace(/^\[|\]$/g, ''), port },
    credentials: parsed.username === '' ? null : `${decode(parsed.username)}:${decode(parsed.password)}`,
  };
}

function decode(text: string): string {
  try {
    return decodeURIComponent(text);
  } catch {
    throw badUrl('a user or password with a "%" that begins no escape: write it as %25');
  }
}

async function readCredentials(path: string): Promise<string> {
  let text: string;
  try {
    text = await readFile(path, 'utf8');
  } catch (error) {
    throw failedPrecondition(`supervisor.credentialsFile cannot be read: ${messageOf(error)}`, { cause: error });
  }
  const line = text.replace(/\r?\n$/, '');
  if (!/^[^:\n]+:[^\n]*$/.test(line)) {
    throw failedPrecondition(`supervisor.credentialsFile ${path}: expected one line, user:password`);
  }
  return line;
}

function badUrl(found: string) {
  return failedPrecondition(`supervisor.url: expected ${SHAPES}, got ${found}`);
}
