import { type Kind, oneOf } from './kind.ts';

/** The contract between the platform and a server of runtime `http`. */
export interface HttpProfile {
  /** Port of 127.0.0.1 on which the server listens. */
  readonly port: number;
  /** Path to which calls are posted. */
  readonly callPath: string;
  /**
   * Path that shows that the server is ready. Null: a server that listens is ready, and no request reaches
   * its code before the first call.
   */
  readonly probe: string | null;
  /** True if only 200 means ready. False: a server without the page is ready as well. */
  readonly isProbeStrict: boolean;
  /** Path to which the initializer is posted; null: initializers do not exist. */
  readonly initPath: string | null;
  /** Header with the id of the session, in addition to `X-Instance-Session`; null: none. */
  readonly sessionHeader: string | null;
  /** True if the answer of the probe can say that the server is busy without a call. */
  readonly tellsBusy: boolean;
  /** True if the variable `PORT` names the port. */
  readonly setsPort: boolean;
  /** True if the functions framework beside the code is started when there is no `bootstrap`. */
  readonly runsFramework: boolean;
}

const PLAIN: HttpProfile = {
  port: 8000,
  callPath: '/invoke',
  probe: '/healthz',
  isProbeStrict: false,
  initPath: '/init',
  sessionHeader: null,
  tellsBusy: false,
  setsPort: false,
  runsFramework: false,
};

const CLOUD_RUN: HttpProfile = {
  ...PLAIN,
  port: 8080,
  callPath: '/',
  probe: null,
  initPath: null,
  setsPort: true,
};

const SAGEMAKER: HttpProfile = {
  ...PLAIN,
  port: 8080,
  callPath: '/invocations',
  probe: '/ping',
  isProbeStrict: true,
  initPath: null,
};

/** The profiles by their names. Streams have the same form in all of them: docs/guides/http-profiles.md. */
export const HTTP_PROFILES = {
  http: PLAIN,
  'functions-framework': { ...CLOUD_RUN, runsFramework: true },
  agentcore: { ...SAGEMAKER, sessionHeader: 'X-Amzn-Bedrock-AgentCore-Runtime-Session-Id', tellsBusy: true },
  sagemaker: SAGEMAKER,
  'cloud-run': CLOUD_RUN,
} as const satisfies Readonly<Record<string, HttpProfile>>;

/** `''` is `http`. */
export type HttpProfileName = '' | Exclude<keyof typeof HTTP_PROFILES, 'http'>;

export const HTTP_PROFILE_NAMES = Object.keys(HTTP_PROFILES) as readonly (keyof typeof HTTP_PROFILES)[];

/** Reads `http` as `''`, the value of an absent field. */
export const httpProfileName: Kind<HttpProfileName> = {
  describe: () => ({ enum: ['', ...HTTP_PROFILE_NAMES] }),
  read(value, path, problem) {
    const read = oneOf(['', ...HTTP_PROFILE_NAMES]).read(value, path, problem);
    return read === undefined ? undefined : read === 'http' ? '' : read;
  },
};

export const HTTP_PROFILE_DOC =
  'The contract that a server of runtime `http` follows: docs/guides/http-profiles.md. Empty: `http`.';

export function httpProfileOf(name: HttpProfileName | undefined): HttpProfile {
  return HTTP_PROFILES[name || 'http'];
}

/** Returns what is wrong with a profile beside these fields, or null. */
export function httpProfileProblem(
  profile: HttpProfileName,
  {
    runtime,
    handler,
    initializer,
  }: { readonly runtime: string; readonly handler: string; readonly initializer: string },
): string | null {
  if (profile === '') return null;
  if (runtime !== 'http')
    return `is for runtime http, got "${profile}" for runtime "${runtime}": remove it, or set runtime to http`;
  const { initPath, runsFramework } = HTTP_PROFILES[profile];
  if (initPath === null && initializer !== '') {
    return `${profile} has no initializer, got "${initializer}": initialize when the server starts`;
  }
  return runsFramework && handler === ''
    ? `${profile} needs a handler, the name of the function that it serves, such as "hello"`
    : null;
}

/** Name of the variable that carries a profile into a sandbox. The user's server does not see it. */
const HTTP_PROFILE_VARIABLE = 'ROOKERY_HTTP_PROFILE';

/** Returns the variables that a profile sets in a sandbox. They win over those of the caller. */
export function httpProfileVariables(
  name: HttpProfileName | undefined,
  instance: {
    readonly handler: string;
    readonly name: string;
    readonly functionName: string;
    readonly functionVersion: string;
  },
): Readonly<Record<string, string>> {
  if (name === undefined || name === '') return {};
  const { port, callPath, probe, isProbeStrict, initPath, sessionHeader, setsPort, runsFramework } =
    HTTP_PROFILES[name];
  const service =
    instance.functionName === '' ? instance.name : (instance.functionName.split('@')[2] ?? instance.functionName);
  return {
    [HTTP_PROFILE_VARIABLE]: JSON.stringify({ name, port, callPath, probe, isProbeStrict, initPath, sessionHeader }),
    ...(setsPort && {
      PORT: String(port),
      K_SERVICE: service,
      K_CONFIGURATION: service,
      K_REVISION: [service, instance.functionVersion.replace('$', '')].filter(part => part !== '').join('-'),
    }),
    ...(runsFramework && { FUNCTION_TARGET: instance.handler }),
  };
}
