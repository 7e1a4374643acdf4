import { isVersionNumber, LATEST } from './urn.ts';

/** The runtime of code that was written for AWS Lambda. */
export const LAMBDA_RUNTIME = 'lambda';
/** The directory of such code, inside. */
export const LAMBDA_TASK_ROOT = '/var/task';

/** A function as a client of AWS Lambda names it. */
export interface LambdaFunction {
  /** The registered name, `0@<service>@<function>`. */
  readonly name: string;
  /** `$latest`, or the number of a published version. null: the name has none. */
  readonly version: string | null;
}

const DEFAULT_SERVICE = 'default';
/** Word for the latest revision. */
export const LAMBDA_LATEST = '$LATEST';
const PART = '[A-Za-z0-9_@-]{1,160}';
const NAMED = new RegExp(
  `^(?:(?:arn:[a-z0-9-]+:lambda:[a-z0-9-]*:)?(?:[A-Za-z0-9_-]*:)?function:)?(${PART})(?::([^:]+))?$`,
);

/**
 * Reads a function name of Lambda: `<function>`, `<service>@<function>`, `0@<service>@<function>`, or one of
 * them behind `function:`, `<account>:function:` or `arn:aws:lambda:<region>:<account>:function:`; each may
 * end with `:<version>`. Regions and accounts have no meaning here. Returns null for any other text.
 */
export function readLambdaName(sent: string): LambdaFunction | null {
  const match = NAMED.exec(sent);
  if (match === null) return null;
  const [, named = '', qualifier] = match;
  const parts = named.split('@');
  const name =
    parts.length === 1
      ? `0@${DEFAULT_SERVICE}@${named}`
      : parts.length === 2
        ? `0@${named}`
        : parts.length === 3 && parts[0] === '0'
          ? named
          : null;
  if (name === null) return null;
  const version = qualifier === undefined ? null : readQualifier(qualifier);
  return qualifier !== undefined && version === null ? null : { name, version };
}

/** Reads `$LATEST` or a version. Returns null for any other text. */
export function readQualifier(sent: string): string | null {
  if (sent === LAMBDA_LATEST || sent === LATEST || sent === 'latest') return LATEST;
  return isVersionNumber(sent) ? sent : null;
}

/** Returns a version as Lambda writes it. */
export function lambdaVersion(version: string): string {
  return version === LATEST ? LAMBDA_LATEST : version;
}

/** Returns the shortest name that `readLambdaName` reads as the function. */
export function shortLambdaName(name: string): string {
  const [, service = '', short = ''] = name.split('@');
  return service === DEFAULT_SERVICE ? short : `${service}@${short}`;
}

/**
 * Returns the ARN of a function. The region and the account are placeholders, which requests may leave out.
 */
export function lambdaArn(name: string): string {
  return `arn:aws:lambda:local:000000000000:function:${shortLambdaName(name)}`;
}

/** The parts of an instance that its variables for AWS Lambda name. */
export interface LambdaSubject {
  readonly codePath: string;
  readonly handler: string;
  readonly memoryMb: number;
  /** The name of an agent. */
  readonly name: string;
  /** The registered name, `0@<service>@<function>`. `''`: an agent without a function. */
  readonly functionName: string;
  readonly functionVersion: string;
  /** Variables of the function. Its region counts. */
  readonly env: Readonly<Record<string, string>>;
}

/** Address of the Lambda Runtime API, on the sandbox's own loopback. */
const RUNTIME_API = '127.0.0.1:9001';
const REGION = 'us-east-1';

/** Returns the variables that AWS Lambda gives to code. */
export function lambdaVariables(instanceId: string, subject: LambdaSubject): Readonly<Record<string, string>> {
  const { codePath, handler, memoryMb, functionName, functionVersion, env } = subject;
  const name = functionName === '' ? subject.name : shortLambdaName(functionName);
  return {
    AWS_REGION: REGION,
    AWS_DEFAULT_REGION: env.AWS_REGION ?? REGION,
    TZ: ':UTC',
    ...env,
    _HANDLER: handler,
    LAMBDA_TASK_ROOT: codePath,
    LAMBDA_RUNTIME_DIR: '/var/runtime',
    AWS_LAMBDA_RUNTIME_API: RUNTIME_API,
    AWS_LAMBDA_FUNCTION_NAME: name,
    AWS_LAMBDA_FUNCTION_VERSION: lambdaVersion(functionVersion || LATEST),
    AWS_LAMBDA_FUNCTION_MEMORY_SIZE: String(memoryMb),
    AWS_LAMBDA_INITIALIZATION_TYPE: 'on-demand',
    AWS_LAMBDA_LOG_GROUP_NAME: `/aws/lambda/${name}`,
    AWS_LAMBDA_LOG_STREAM_NAME: instanceId,
  };
}
