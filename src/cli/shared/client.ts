import { setMaxListeners } from 'node:events';
import { readFile, stat as statFile } from 'node:fs/promises';
import { request as httpRequest, type IncomingMessage, validateHeaderValue } from 'node:http';
import { request as httpsRequest } from 'node:https';
import type { Readable } from 'node:stream';
import { type Command, Option } from 'commander';
import type { WebSocket } from 'ws';
import { fileProblem } from '../../../clients/typescript/src/file-problem.ts';
import { isLoopback } from '../../config/contradictions.ts';
import { readLocalToken } from '../../config/local-token.ts';
import { onAbort } from '../../lib/linked-signal.ts';
import { contextInForce, type Server } from './contexts.ts';
import { CliError, EXIT, usageError } from './exit.ts';
import type { Io } from './io.ts';
import { printWarnings } from './print.ts';
import { adviceOf, cut, type Entry, parseObject, refusal, unanswered, unreachable } from './request-errors.ts';

export interface ClientOptions {
  readonly context?: string;
  readonly address?: string;
  readonly metaAddress?: string;
  readonly token?: string;
  readonly tokenFile?: string;
  readonly tenant?: string;
  readonly caFile?: string;
  readonly dataDir?: string;
}

export interface RequestOptions {
  readonly entry?: Entry;
  readonly headers?: Readonly<Record<string, string>>;
  /** JSON text, sent unchanged. */
  readonly body?: string | Uint8Array;
  /** A stream to send instead of `body`. */
  readonly upload?: { readonly content: Readable /** Null: unknown. */; readonly bytes: number | null };
  /** Time until the answer begins; null when the service bounds it (calls). */
  readonly timeoutMs?: number | null;
  /** Ends this request. */
  readonly signal?: AbortSignal;
}

export const DEFAULT_ADDRESSES: Readonly<Record<Entry, string>> = {
  frontend: 'http://127.0.0.1:8888',
  meta: 'http://127.0.0.1:31182',
};
const DEFAULT_TIMEOUT_MS = 5 * 60_000;
const KEEP_ALIVE_PROBE_MS = 30_000;
const MAX_ANSWER_BYTES = 64 * 1024 * 1024;

/** Adds the options of every command that calls the service. */
export function addClientOptions(command: Command): Command {
  const options = [
    new Option('--context <name>', 'the server of this context; else $ROOKERY_CONTEXT'),
    new Option('--address <url>', `the frontend; else $ROOKERY_ADDRESS, the context, ${DEFAULT_ADDRESSES.frontend}`),
    new Option(
      '--meta-address <url>',
      `the meta_service; else $ROOKERY_META_ADDRESS, that of --address, the context, ${DEFAULT_ADDRESSES.meta}`,
    ),
    new Option('--token <jwt>', 'the token to send; else $ROOKERY_TOKEN'),
    new Option('--token-file <file>', 'a file with the token to send; else $ROOKERY_TOKEN_FILE'),
    new Option('--ca-file <file>', 'the PEM file of the service’s authority; else $ROOKERY_CA_FILE'),
    new Option(
      '--data-dir <dir>',
      'the data directory with the token of a local service; else $ROOKERY_DATA_DIR, else the default of serve',
    ),
    new Option('--tenant <tenant>', 'the tenant, when authentication is off; else $ROOKERY_TENANT'),
  ];
  const others = options.filter(({ long }) => !command.options.some(own => own.long === long));
  for (const option of others) command.addOption(option.helpGroup('Connection:'));
  return command;
}

/** Sends HTTP requests to both entries of a service. Every failure is a `CliError` with its exit code. */
export class Client {
  readonly addresses: Readonly<Record<Entry, URL>>;
  readonly #headers: Readonly<Record<Entry, Readonly<Record<string, string>>>>;
  readonly #authorities: Readonly<Record<Entry, { readonly ca?: string }>>;
  readonly #io: Io;
  /** The next step after a 401; depends on whether the service's own token is hidden from this user. */
  readonly #login: string;

  private constructor(
    addresses: Readonly<Record<Entry, URL>>,
    headers: Readonly<Record<Entry, Readonly<Record<string, string>>>>,
    authorities: Readonly<Record<Entry, { readonly ca?: string }>>,
    io: Io,
    login: string,
  ) {
    this.addresses = addresses;
    this.#login = login;
    this.#headers = headers;
    this.#authorities = authorities;
    this.#io = io;
    // Each running request adds a listener, and many may run at once.
    setMaxListeners(0, io.signal);
  }

  /**
   * Opens a client from the flags, then the environment, then the context. Data of a context is sent only to
   * its own addresses.
   */
  static async open(options: ClientOptions, io: Io): Promise<Client> {
    const { environment } = io;
    const token = await readToken(options, environment);
    const server = (await contextInForce(options.context, environment))?.server;
    const tenant = options.tenant ?? environment.ROOKERY_TENANT;
    const addresses = addressesOf(options, environment, server);
    const own = new Set([server?.address, server?.metaAddress].flatMap(url => (url ? [new URL(url).origin] : [])));
    const local = token === null ? await findLocalToken(options, environment) : null;
    const caFile = options.caFile ?? environment.ROOKERY_CA_FILE;
    const connection = async (entry: Entry) => {
      const { origin, hostname } = addresses[entry];
      const known = own.has(origin) ? server : undefined;
      // Only a service of this machine can have written the local token.
      const sent = token ?? known?.token ?? (isLoopback(hostname) ? local : null);
      const speaksFor = tenant || known?.tenant;
      const authority = caFile || known?.caFile;
      const headers = {
        ...(sent === null ? {} : { authorization: `Bearer ${sent}` }),
        ...(speaksFor ? { 'x-tenant-id': speaksFor } : {}),
      };
      checkHeaders(headers);
      return { headers, authority: authority ? { ca: await readAuthority(authority) } : {} };
    };
    const [frontend, meta] = await Promise.all([connection('frontend'), connection('meta')]);
    const headers = { frontend: frontend.headers, meta: meta.headers };
    const isHere = isLoopback(addresses.frontend.hostname) && isLoopback(addresses.meta.hostname);
    const hidden = isHere && token === null && local === null ? await findHiddenToken() : null;
    const login = hidden === null ? LOGIN : adviceOnHidden(hidden);
    return new Client(addresses, headers, { frontend: frontend.authority, meta: meta.authority }, io, login);
  }

  /** Returns the text of the answer. Fails for every status other than 2xx. */
  async text(method: string, path: string, options: RequestOptions = {}): Promise<string> {
    const answer = await this.stream(method, path, options);
    return readText(answer);
  }

  /** Returns the JSON object of the answer. The service's advice for the next step becomes `advice`. */
  async json(method: string, path: string, options: RequestOptions = {}): Promise<Record<string, unknown>> {
    const answer = await this.stream(method, path, options);
    const text = await readText(answer);
    const value = parseObject(text);
    if (value === null)
      throw new CliError(`The service answered with something that is not a JSON object: ${cut(text)}`);
    this.#tellWarnings(value);
    const advice = adviceOf(answer);
    return advice === undefined ? value : { ...value, advice };
  }

  /** Returns the answer as a stream. Fails for every status other than 2xx. */
  async stream(method: string, path: string, options: RequestOptions = {}): Promise<IncomingMessage> {
    const answer = await this.#send(method, path, options);
    const status = answer.statusCode ?? 0;
    if (status >= 200 && status < 300) return answer;
    const text = await readText(answer);
    this.#tellWarnings(parseObject(text));
    throw refusal(answer, text, this.#login);
  }

  /** Returns the answer with any status. Its text comes from `read`. */
  async answer(
    method: string,
    path: string,
    options: RequestOptions,
  ): Promise<{ readonly status: number; readonly type: string; readonly read: () => Promise<string> }> {
    const answer = await this.#send(method, path, options);
    const type = answer.headers['content-type'] ?? '';
    return { status: answer.statusCode ?? 0, type, read: () => readText(answer) };
  }

  /** Prints the warnings of an answer: unknown fields, limits of the machine. */
  #tellWarnings(answer: Record<string, unknown> | null): void {
    const warnings: readonly unknown[] = Array.isArray(answer?.warnings) ? answer.warnings : [];
    printWarnings(
      this.#io,
      warnings.filter(warning => typeof warning === 'string'),
    );
  }

  /** Opens a WebSocket to the frontend and pauses it. The caller resumes it after adding a listener. */
  async webSocket(path: string): Promise<WebSocket> {
    const { WebSocket } = await import('ws');
    const base = this.addresses.frontend;
    const url = new URL(base.pathname.replace(/\/$/, '') + path, base);
    url.protocol = base.protocol === 'https:' ? 'wss:' : 'ws:';
    const socket = new WebSocket(url, {
      ...this.#authorities.frontend,
      headers: this.#headers.frontend,
      handshakeTimeout: DEFAULT_TIMEOUT_MS,
      perMessageDeflate: false,
    });
    const { signal } = this.#io;
    socket.once(
      'close',
      onAbort(signal, () => socket.terminate()),
    );
    return await new Promise((resolve, reject) => {
      socket.once('open', () => {
        // Messages that arrived with the handshake would otherwise be lost, because the caller has no
        // listener yet.
        socket.pause();
        resolve(socket);
      });
      socket.once('unexpected-response', (request, answer) => {
        readText(answer).then(text => reject(refusal(answer, text, this.#login)), reject);
        answer.once('close', () => request.destroy());
      });
      // Stays subscribed, because an error after the handshake appears only in how the socket closes.
      socket.on('error', error => reject(unreachable('frontend', base, error)));
    });
  }

  #send(method: string, path: string, options: RequestOptions): Promise<IncomingMessage> {
    const entry = options.entry ?? 'frontend';
    const base = this.addresses[entry];
    const url = new URL(base.pathname.replace(/\/$/, '') + path, base);
    const body = options.body === undefined ? undefined : Buffer.from(options.body);
    const headers = {
      ...this.#headers[entry],
      ...(body === undefined ? {} : { 'content-type': 'application/json', 'content-length': body.length }),
      ...(options.upload === undefined
        ? {}
        : {
            'content-type': 'application/octet-stream',
            ...(options.upload.bytes === null ? {} : { 'content-length': options.upload.bytes }),
          }),
      ...options.headers,
    };
    checkHeaders(options.headers ?? {});
    const signal = options.signal ? AbortSignal.any([options.signal, this.#io.signal]) : this.#io.signal;
    const timeoutMs = options.timeoutMs === undefined ? DEFAULT_TIMEOUT_MS : options.timeoutMs;
    return new Promise((resolve, reject) => {
      const send = url.protocol === 'https:' ? httpsRequest : httpRequest;
      const request = send(url, { ...this.#authorities[entry], method, headers, signal });
      const timer =
        timeoutMs === null
          ? undefined
          : setTimeout(() => request.destroy(new Error(`no answer in ${timeoutMs / 1000} s`)), timeoutMs);
      let isConnected = false;
      request.on('socket', socket => {
        socket.setKeepAlive(true, KEEP_ALIVE_PROBE_MS);
        isConnected = request.reusedSocket;
        if (isConnected) return;
        socket.once(url.protocol === 'https:' ? 'secureConnect' : 'connect', () => {
          isConnected = true;
        });
      });
      request.on('response', answer => {
        clearTimeout(timer);
        resolve(answer);
      });
      request.on('error', error => {
        clearTimeout(timer);
        reject(isConnected ? unanswered(entry, base, method, error) : unreachable(entry, base, error));
      });
      if (options.upload === undefined) request.end(body);
      else options.upload.content.on('error', error => request.destroy(error)).pipe(request);
    });
  }
}

/**
 * Returns the addresses of both entries. A frontend that is named without its meta_service answers for it at
 * `/api/meta`.
 */
function addressesOf(
  options: ClientOptions,
  environment: Io['environment'],
  server: Server | undefined,
): Readonly<Record<Entry, URL>> {
  const named = options.address ?? (environment.ROOKERY_ADDRESS || undefined);
  const frontend = parseAddress(named ?? server?.address, 'frontend');
  const meta = options.metaAddress ?? (environment.ROOKERY_META_ADDRESS || undefined);
  const isOfContext = server !== undefined && parseAddress(server.address, 'frontend').href === frontend.href;
  if (meta === undefined && named !== undefined && !isOfContext) return { frontend, meta: metaBehind(frontend) };
  return { frontend, meta: parseAddress(meta ?? server?.metaAddress, 'meta') };
}

/** Returns the address at which a frontend serves the routes of its meta_service. */
export function metaBehind(frontend: URL): URL {
  const url = new URL(frontend);
  url.pathname = `${frontend.pathname.replace(/\/$/, '')}/api/meta`;
  return url;
}

export async function readToken(options: ClientOptions, environment: Io['environment']): Promise<string | null> {
  const token = options.token ?? (options.tokenFile === undefined ? environment.ROOKERY_TOKEN : undefined);
  if (token) return checkToken(token, '--token');
  const file = options.tokenFile ?? environment.ROOKERY_TOKEN_FILE;
  if (!file) return null;
  try {
    return checkToken((await readFile(file, 'utf8')).trim(), file);
  } catch (error) {
    if (error instanceof CliError) throw error;
    throw usageError(`The token file ${file} cannot be read: ${fileProblem(error)}.`);
  }
}

/** Returns the local token of a service that this user started with --local-token, or null. */
async function findLocalToken({ dataDir }: ClientOptions, environment: Io['environment']): Promise<string | null> {
  const named = dataDir ?? environment.ROOKERY_DATA_DIR;
  if (named) return await readLocalToken(named);
  const { defaultDataDir } = await import('../../config/config.ts');
  return await readLocalToken(defaultDataDir({ environment, isRoot: process.getuid?.() === 0 }));
}

/** The data directory of a service that root runs with its defaults. */
const OF_ROOT = '/var/lib/rookery';

/** Returns the data directory of root's service when this user may not look into it, or null. */
export async function findHiddenToken(stat: typeof statFile = statFile): Promise<string | null> {
  const error = await stat(`${OF_ROOT}/local-token`).then(
    () => null,
    (error: NodeJS.ErrnoException) => error,
  );
  return error?.code === 'EACCES' ? OF_ROOT : null;
}

const LOGIN =
  'Give a token with --token or ROOKERY_TOKEN, or keep one with "rookery login"; "rookery token create" makes one. The one of a service with --local-token is found with --data-dir or ROOKERY_DATA_DIR.';

/** Returns the next step when the token is that of another user's service. */
export function adviceOnHidden(dataDir: string): string {
  return `The data directory ${dataDir} belongs to another user, and may hold the token of this service: repeat the command as that user (sudo rookery …), or give a token with --token or "rookery login".`;
}

async function readAuthority(file: string): Promise<string> {
  try {
    return await readFile(file, 'utf8');
  } catch (error) {
    throw usageError(`The CA file ${file} cannot be read: ${fileProblem(error)}.`);
  }
}

/** Returns the token if it has only visible ASCII, which a header requires. */
export function checkToken(token: string, where: string): string {
  if (!/^[\x21-\x7e]+$/.test(token))
    throw usageError(`The content of ${where} is not a token: it is empty or has characters that a token cannot have.`);
  return token;
}

export function parseAddress(given: string | undefined, entry: Entry): URL {
  const text = given || DEFAULT_ADDRESSES[entry];
  const full = /^[a-z]+:\/\//i.test(text) ? text : `http://${text}`;
  const url = URL.canParse(full) ? new URL(full) : null;
  if (url !== null && (url.protocol === 'http:' || url.protocol === 'https:')) return url;
  const flag = entry === 'frontend' ? '--address' : '--meta-address';
  throw usageError(`${flag} must be a URL such as ${DEFAULT_ADDRESSES[entry]}, not ${JSON.stringify(text)}.`);
}

/** Checks values of flags, variables and contexts, which may not fit into a header. */
function checkHeaders(headers: Readonly<Record<string, string>>): void {
  for (const [name, value] of Object.entries(headers)) {
    try {
      validateHeaderValue(name, value);
    } catch {
      throw usageError(
        `${JSON.stringify(value)} cannot be sent as ${name}: it has characters that a header cannot have.`,
      );
    }
  }
}

async function readText(answer: IncomingMessage): Promise<string> {
  const chunks: Buffer[] = [];
  let bytes = 0;
  try {
    for await (const chunk of answer as AsyncIterable<Buffer>) {
      bytes += chunk.length;
      if (bytes > MAX_ANSWER_BYTES) throw new CliError('The answer is too long to be one of this service.');
      chunks.push(chunk);
    }
  } catch (error) {
    if (error instanceof CliError) throw error;
    throw new CliError(
      `The connection broke in the middle of the answer (${(error as Error).message}).`,
      EXIT.unreachable,
    );
  }
  return Buffer.concat(chunks).toString('utf8');
}
