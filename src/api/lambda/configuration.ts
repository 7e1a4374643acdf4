import type { FastifyContextConfig, FastifyReply, FastifyRequest, RouteShorthandOptions } from 'fastify';
import type { CodePackages } from '../../code/code-packages.ts';
import { parseCodeUrl } from '../../core/code-package.ts';
import type { FunctionVersion } from '../../core/function.ts';
import { lambdaLayersOf, lambdaLayerVersionArn } from '../../core/lambda-layers.ts';
import {
  type LambdaFunction,
  lambdaArn,
  lambdaVersion,
  readLambdaName,
  readQualifier,
  shortLambdaName,
} from '../../core/lambda-name.ts';
import type { Variables } from '../../core/secret.ts';
import { changeRefusalOf, LambdaError } from './failures.ts';
import { sendLambdaRefusal } from './signature-gate.ts';
import { toLambdaVariables } from './variables.ts';

/** The fields of a function's record that this API shows. */
export interface FunctionFacts {
  readonly name: string;
  readonly kind: string;
  readonly runtime: string;
  readonly layers: readonly unknown[] | null;
  readonly handler: string;
  readonly memory: number;
  /** Seconds. */
  readonly timeout: number;
  readonly description: string;
  readonly environment: Variables;
  readonly storageType: string;
  readonly codePath: string;
  readonly createTime: string;
  readonly updateTime: string;
  /** Absent or empty: not a published version. */
  readonly Published?: string;
  readonly revisionId: string;
  readonly versionNumber: string;
  /** The description of a published version. */
  readonly versionDesc: string;
}

/** Returns the options of a route that needs an access right, which a signature may prove. */
export type RouteOptions = (
  access: 'read' | 'invoke' | 'write',
  url: string,
  more?: Pick<FastifyContextConfig, 'livesWith'>,
) => RouteShorthandOptions;

/** A request whose path names a function. */
export type ByName = { Params: { name: string }; Querystring: { readonly Qualifier?: unknown } };

/** Returns the function that a request names. Fails if the name or the qualifier cannot be one. */
export function readNamed({ params, query }: Pick<FastifyRequest<ByName>, 'params' | 'query'>): LambdaFunction {
  const named = readLambdaName(params.name);
  const qualifier = typeof query.Qualifier === 'string' ? readQualifier(query.Qualifier) : null;
  if (named === null || (query.Qualifier !== undefined && qualifier === null)) throw unknownFunction(params.name);
  return { name: named.name, version: named.version ?? qualifier };
}

/** Answers with the value (null: no body), or with the error in the form of this API. */
export async function answering(reply: FastifyReply, read: () => Promise<object | null>): Promise<FastifyReply> {
  try {
    return reply.send((await read()) ?? undefined);
  } catch (error) {
    const { name = '' } = reply.request.params as { readonly name?: string };
    const refused = changeRefusalOf(error, name);
    if (refused === null) throw error;
    return sendLambdaRefusal(reply, refused);
  }
}

function unknownFunction(name: string): LambdaError {
  return new LambdaError({
    status: 404,
    type: 'ResourceNotFoundException',
    message: `Function not found: ${name}`,
  });
}

export function invalidValue(message: string): LambdaError {
  return new LambdaError({ status: 400, type: 'InvalidParameterValueException', message });
}

/** Returns a version of a function as clients of AWS Lambda expect it. `codeSize`: bytes of the zip. */
export function toConfiguration(fn: FunctionFacts, codeSize?: number): object {
  const version = lambdaVersion(fn.versionNumber);
  const variables = toLambdaVariables(fn.environment);
  const layers = lambdaLayersOf(fn);
  return {
    FunctionName: shortLambdaName(fn.name),
    FunctionArn: version === '$LATEST' ? lambdaArn(fn.name) : `${lambdaArn(fn.name)}:${version}`,
    Runtime: fn.runtime,
    Handler: fn.handler,
    MemorySize: fn.memory,
    Timeout: fn.timeout,
    Description: fn.versionDesc || fn.description,
    ...(Object.keys(variables).length > 0 && { Environment: { Variables: variables } }),
    LastModified: toIsoTime(fn.Published || fn.updateTime || fn.createTime),
    Version: version,
    RevisionId: fn.revisionId,
    ...codeFacts(fn),
    ...(layers.length > 0 && { Layers: layers.map(sha256 => ({ Arn: lambdaLayerVersionArn(sha256) })) }),
    ...(codeSize !== undefined && { CodeSize: codeSize }),
    State: 'Active',
    LastUpdateStatus: 'Successful',
    PackageType: 'Zip',
  };
}

/** Returns the facts of a version that was read to run it. */
export function factsOf({ spec, ...fn }: FunctionVersion): FunctionFacts {
  return { ...spec, ...fn, versionNumber: fn.version, Published: fn.publishTime };
}

/** Reads the size of code. */
export type SizeReads = Pick<CodePackages, 'find'>;

/** Returns the configuration of a version with the size of its code, if the code is a package. */
export async function describeFunction(fn: FunctionFacts, tenant: string, packages: SizeReads): Promise<object> {
  const sha256 = fn.storageType === 'package' ? parseCodeUrl(fn.codePath) : null;
  const found = sha256 === null ? null : await packages.find(tenant, sha256);
  return toConfiguration(fn, found?.bytes);
}

/** Converts a time of a record, `2026-11-20 10:00:00.000 UTC`. */
function toIsoTime(time: string): string {
  return time.replace(' UTC', '+0000').replace(' ', 'T');
}

/** Returns the SHA-256 of the function's code package in the form of this API, if it has one. */
export function codeSha256Of({ storageType, codePath }: Pick<FunctionFacts, 'storageType' | 'codePath'>): string {
  const sha256 = storageType === 'package' ? parseCodeUrl(codePath) : null;
  return sha256 === null ? '' : Buffer.from(sha256, 'hex').toString('base64');
}

function codeFacts(fn: FunctionFacts): { readonly CodeSha256?: string } {
  const sha256 = codeSha256Of(fn);
  return sha256 === '' ? {} : { CodeSha256: sha256 };
}
