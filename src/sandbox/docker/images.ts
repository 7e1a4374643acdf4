import { readFile } from 'node:fs/promises';
import { homedir } from 'node:os';
import { join } from 'node:path';
import type { Readable } from 'node:stream';
import type { Environment } from '../../core/environment.ts';
import { deadlineExceeded, failedPrecondition } from '../../core/error.ts';
import { within } from '../../lib/deadline.ts';
import type { Logger } from '../../telemetry/logger.ts';
import { daemonMessage, type Engine, statusOf } from './engine.ts';

/** Interval between log lines about the progress of a pull. */
const PROGRESS_INTERVAL_MS = 2_000;
/** Limit on concurrent pulls. A pull continues even when all its callers have given up. */
const MOST_PULLS = 32;

/** Line of the daemon's answer to a pull. */
interface PullProgress {
  readonly error?: string;
  readonly id?: string;
  readonly progressDetail?: { readonly current?: number };
}

interface PullOptions {
  readonly pullTimeoutMs: number;
  readonly registries: RegistryRules;
  readonly environment: Environment;
}

/** Pulls images that the daemon lacks. Concurrent callers share one pull per image. */
export class Images {
  readonly #engine: Engine;
  readonly #logger: Logger;
  readonly #pullTimeoutMs: number;
  readonly #registries: RegistryRules;
  readonly #environment: Environment;
  readonly #pulls = new Map<string, Promise<void>>();

  constructor(engine: Engine, logger: Logger, { pullTimeoutMs, registries, environment }: PullOptions) {
    this.#engine = engine;
    this.#logger = logger;
    this.#pullTimeoutMs = pullTimeoutMs;
    this.#registries = registries;
    this.#environment = environment;
  }

  /**
   * Pulls the image. The pull continues without callers, up to `pullTimeoutMs`, so that the next create finds
   * the image. Fails with `failed_precondition` (`image … cannot be pulled: …`), or with `deadline_exceeded`
   * when `signal` aborts.
   */
  async pull(reference: string, signal: AbortSignal): Promise<void> {
    let pull = this.#pulls.get(reference);
    if (pull === undefined) {
      if (this.#pulls.size >= MOST_PULLS) throw cannotPull(reference, `${MOST_PULLS} other images are being pulled`);
      pull = this.#run(reference).finally(() => this.#pulls.delete(reference));
      this.#pulls.set(reference, pull);
    }
    const late = `image ${reference} is still being pulled`;
    // The pull's own timeout fires first, so twice that time is only a fallback.
    await within(pull, this.#pullTimeoutMs * 2, late, signal);
  }

  async #run(reference: string): Promise<void> {
    const auth = await authorizePull(reference, this.#registries, this.#environment);
    if (auth === null) {
      throw cannotPull(reference, `the setting docker.registries does not name ${registryName(reference)}`);
    }
    const startedMs = performance.now();
    this.#logger.info({ image: reference }, 'pulling image');
    let stream: Readable | undefined;
    const late = deadlineExceeded(`it took longer than ${this.#pullTimeoutMs / 1000} s`);
    const timer = setTimeout(() => stream?.destroy(late), this.#pullTimeoutMs);
    try {
      const { authconfig } = auth;
      const options = { fromImage: withTag(reference), ...(authconfig === undefined ? {} : { authconfig }) };
      stream = (await this.#engine.request(
        `pull ${reference}`,
        docker => docker.createImage(options),
        this.#pullTimeoutMs,
      )) as Readable;
      const failure = await this.#follow(reference, stream);
      if (failure !== null) throw cannotPull(reference, explain(failure, auth), new Error(failure));
    } catch (error) {
      const cause = statusOf(error) !== null ? daemonMessage(error) : stream?.errored?.message;
      const why = (said: string) => (stream?.errored === late ? said : explain(said, auth));
      const failure = cause === undefined ? error : cannotPull(reference, why(cause), new Error(cause));
      const said = failure instanceof Error && failure.cause instanceof Error ? failure.cause.message : undefined;
      this.#logger.warn({ image: reference, err: failure, said }, 'image pull failed');
      throw failure;
    } finally {
      clearTimeout(timer);
    }
    this.#logger.info({ image: reference, ms: Math.round(performance.now() - startedMs) }, 'image pulled');
  }

  /** Reads the progress to its end. Returns the daemon's error, or null. */
  async #follow(reference: string, stream: Readable): Promise<string | null> {
    const layers = new Map<string, number>();
    let toldMs = performance.now();
    let rest = '';
    let failure: string | null = null;
    for await (const chunk of stream.setEncoding('utf8')) {
      const lines = (rest + chunk).split('\n');
      rest = lines.pop() ?? '';
      for (const line of lines) {
        const progress = parse(line);
        failure = progress.error ?? failure;
        const current = progress.progressDetail?.current;
        if (progress.id !== undefined && current !== undefined) layers.set(progress.id, current);
      }
      if (performance.now() - toldMs < PROGRESS_INTERVAL_MS) continue;
      toldMs = performance.now();
      const bytes = [...layers.values()].reduce((sum, value) => sum + value, 0);
      this.#logger.info({ image: reference, layers: layers.size, bytes }, 'image pull in progress');
    }
    return failure ?? parse(rest).error ?? null;
  }
}

/** Reasons for a failure, found by words that the daemon chooses and no registry can. */
const REASONS: readonly (readonly [RegExp, string])[] = [
  [/unauthorized|denied|authenti|authoriz|HTTP 40[13]/i, 'the registry refused access'],
  [/manifest unknown|not found|unknown blob|HTTP 404/i, 'the registry does not have it'],
  [/verification failed|unmarshal|unsupported|invalid/i, 'what the registry sent is no image'],
  [/no such host|refused|timeout|unreachable|EOF|reset|HTTPS client/i, 'the registry could not be reached'],
];

/**
 * Returns the reason for a failed pull. The daemon's message contains the answer of any address to which a
 * registry redirects it. So the message of a registry that the settings do not name is only logged.
 */
function explain(failure: string, { isTrusted, registry }: PullAuth): string {
  if (isTrusted) return failure;
  const reason = REASONS.find(([words]) => words.test(failure))?.[1] ?? 'it failed';
  return `${reason} (it was asked without a token and its own words are in the log only, because the setting docker.registries does not name ${registry})`;
}

const IMAGE_NAME =
  /^(?=.{1,255}$)[A-Za-z0-9](?:[A-Za-z0-9.-]*(?::\d{1,5})?\/)?(?:[a-z0-9._/-]*[a-z0-9])?(?::[A-Za-z0-9_][A-Za-z0-9._-]{0,127})?(?:@sha256:[0-9a-f]{64})?$/;

/** Returns true if the text can be the name of an image. */
export function isImageName(text: string): boolean {
  return IMAGE_NAME.test(text);
}

/** Beginning of the names of images that hold templates of tenants. */
export const TEMPLATE_PREFIX = 'rookery-template/';

/** Returns the error for an image that sandboxes without code need: these never pull one. */
export function missingImage(reference: string): Error {
  if (reference.startsWith(TEMPLATE_PREFIX)) {
    return failedPrecondition('the image of the template is not on this machine; build the template again');
  }
  return failedPrecondition(`image ${reference} is not here; run: docker pull ${reference}`);
}

function cannotPull(reference: string, why: string, cause?: unknown): Error {
  return failedPrecondition(`image ${reference} is not here and cannot be pulled: ${why}`, { cause });
}

/** Adds a tag to a reference. Without one the daemon would pull every tag of the repository. */
function withTag(reference: string): string {
  if (reference.includes('@')) return reference;
  const name = reference.slice(reference.lastIndexOf('/') + 1);
  return name.includes(':') ? reference : `${reference}:latest`;
}

function parse(line: string): PullProgress {
  try {
    return JSON.parse(line) as PullProgress;
  } catch {
    return {};
  }
}

/** Name of Docker Hub in the client's configuration. */
const HUB = 'https://index.docker.io/v1/';

/** Large public registries, which are trusted to name their own token servers. */
const PUBLIC_REGISTRIES = [
  ...['docker.io', 'ghcr.io', 'quay.io', 'gcr.io', 'registry.k8s.io', 'public.ecr.aws', 'mcr.microsoft.com'],
  'nvcr.io',
];

/** Registries from which images may be pulled. */
export interface RegistryRules {
  /** Registries trusted in addition to those with a login; null: the large public ones. */
  readonly named: readonly string[] | null;
  /** True if untrusted registries are refused. */
  readonly onlyNamed: boolean;
}

/** Credentials for `createImage`, and whether the registry is trusted. */
export interface PullAuth {
  readonly authconfig?: RegistryAuth | RegistryToken;
  readonly registry: string;
  readonly isTrusted: boolean;
}

interface RegistryToken {
  readonly registrytoken: string;
  readonly serveraddress: string;
}

/** User name and password for `createImage`. */
export interface RegistryAuth {
  readonly username: string;
  readonly password: string;
  readonly serveraddress: string;
}

/**
 * Returns how the daemon may pull an image, or null when its registry is refused. The daemon contacts any
 * token server that a registry names, over the host's network. An untrusted registry therefore gets a dummy
 * token, so that the daemon contacts no token server.
 */
export async function authorizePull(
  image: string,
  { named, onlyNamed }: RegistryRules,
  environment: Environment,
): Promise<PullAuth | null> {
  const registry = registryName(image);
  const login = await findRegistryAuth(image, environment);
  if (login !== null) return { authconfig: login, registry, isTrusted: true };
  if ((named ?? PUBLIC_REGISTRIES).includes(registry)) return { registry, isTrusted: true };
  if (onlyNamed) return null;
  return { authconfig: { registrytoken: 'none', serveraddress: registry }, registry, isTrusted: false };
}

/** Returns the registry of an image as the settings name it; Docker Hub is `docker.io`. */
export function registryName(image: string): string {
  const registry = registryOf(image);
  return registry === HUB || registry === 'index.docker.io' ? 'docker.io' : registry;
}

/**
 * Returns the login that `docker login` stored for the registry of an image, or null. Credential helpers are
 * not used.
 */
export async function findRegistryAuth(image: string, environment: Environment): Promise<RegistryAuth | null> {
  const path = join(environment.DOCKER_CONFIG || join(homedir(), '.docker'), 'config.json');
  let auths: Record<string, { auth?: unknown }>;
  try {
    auths = (JSON.parse(await readFile(path, 'utf8')) as { auths?: typeof auths }).auths ?? {};
  } catch {
    return null;
  }
  const registry = registryOf(image);
  const entry = Object.entries(auths).find(
    ([name]) => name === registry || name.replace(/^https?:\/\//, '').replace(/\/.*$/, '') === registry,
  );
  if (entry === undefined || typeof entry[1].auth !== 'string') return null;
  const text = Buffer.from(entry[1].auth, 'base64').toString();
  const colon = text.indexOf(':');
  if (colon < 1) return null;
  return { username: text.slice(0, colon), password: text.slice(colon + 1), serveraddress: entry[0] };
}

function registryOf(image: string): string {
  const [first = ''] = image.split('/', 1);
  // Same rule as in the daemon: user names on Docker Hub have no dot, colon or capital letter.
  const isHost = image.includes('/') && (/[.:A-Z]/.test(first) || first === 'localhost');
  return isHost && first !== 'docker.io' ? first : HUB;
}
