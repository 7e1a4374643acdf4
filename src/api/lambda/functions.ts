import type {
  FastifyContextConfig,
  FastifyInstance,
  FastifyReply,
  FastifyRequest,
  RouteShorthandOptions,
} from 'fastify';
import { ServiceError } from '../../core/error.ts';
import { lambdaArn, lambdaVersion, readLambdaName, readQualifier, shortLambdaName } from '../../core/lambda-name.ts';
import { LATEST } from '../../core/urn.ts';
import type { FunctionRegistry } from '../../registry/functions.ts';
import { LambdaError, refusalOf } from './failures.ts';
import { sendLambdaRefusal } from './signature-gate.ts';

/** Functions on a page, as the API of AWS Lambda has it. */
const PAGE = { default: 50, max: 10_000 };

/** The fields of a function's record that this API shows. */
interface FunctionFacts {
  readonly name: string;
  readonly runtime: string;
  readonly handler: string;
  readonly memory: number;
  /** Seconds. */
  readonly timeout: number;
  readonly description: string;
  readonly createTime: string;
  readonly updateTime: string;
  readonly revisionId: string;
  readonly versionNumber: string;
}

/** The part of the registry that this API reads. */
export type LambdaRegistry = Pick<FunctionRegistry, 'get' | 'latestByName'>;

/** Returns the options of a route that needs an access right, which a signature may prove. */
export type RouteOptions = (
  access: 'read' | 'invoke' | 'write',
  url: string,
  more?: Pick<FastifyContextConfig, 'livesWith'>,
) => RouteShorthandOptions;

type ByName = { Params: { name: string }; Querystring: { Qualifier?: unknown } };

/** Adds the routes that list and describe functions. */
export function addLambdaLists(
  app: FastifyInstance,
  path: string,
  registry: LambdaRegistry,
  optionsOf: RouteOptions,
): void {
  app.get(path, optionsOf('read', path), (request, reply) =>
    answering(reply, async () => {
      const { MaxItems, Marker } = request.query as { readonly MaxItems?: unknown; readonly Marker?: unknown };
      const limit = readMaxItems(MaxItems);
      const after = typeof Marker === 'string' ? readMarker(Marker) : '';
      const records = (await registry.latestByName(request.tenant, after, limit + 1)).map(
        text => JSON.parse(text) as FunctionFacts,
      );
      const page = records.slice(0, limit);
      const last = page.at(-1);
      return {
        Functions: page.map(toConfiguration),
        NextMarker: last !== undefined && records.length > limit ? Buffer.from(last.name).toString('base64url') : null,
      };
    }),
  );
  const configurationOf = async ({ params, query, tenant }: FastifyRequest<ByName>) => {
    const named = readLambdaName(params.name);
    const qualifier = typeof query.Qualifier === 'string' ? readQualifier(query.Qualifier) : null;
    const version = named?.version ?? qualifier ?? LATEST;
    if (named === null || (query.Qualifier !== undefined && qualifier === null)) throw unknown(params.name);
    try {
      const { spec, ...fn } = await registry.get(tenant, named.name, version);
      return toConfiguration({ ...spec, ...fn, versionNumber: fn.version });
    } catch (error) {
      throw error instanceof ServiceError && error.code === 'not_found' ? unknown(params.name) : error;
    }
  };
  const one = `${path}/:name`;
  app.get<ByName>(one, optionsOf('read', one), (request, reply) =>
    answering(reply, async () => ({ Configuration: await configurationOf(request) })),
  );
  const configuration = `${one}/configuration`;
  app.get<ByName>(configuration, optionsOf('read', configuration), (request, reply) =>
    answering(reply, () => configurationOf(request)),
  );
}

/** Answers with the value, or with the error in the form of this API. */
async function answering(reply: FastifyReply, read: () => Promise<object>): Promise<FastifyReply> {
  try {
    return reply.send(await read());
  } catch (error) {
    const refusal = refusalOf(error);
    if (refusal === null) throw error;
    return sendLambdaRefusal(reply, refusal);
  }
}

function unknown(name: string): LambdaError {
  return new LambdaError({
    status: 404,
    type: 'ResourceNotFoundException',
    message: `Function not found: ${name}`,
  });
}

function readMaxItems(sent: unknown): number {
  if (sent === undefined) return PAGE.default;
  const items = typeof sent === 'string' && /^\d{1,5}$/.test(sent) ? Number(sent) : 0;
  if (items >= 1 && items <= PAGE.max) return items;
  throw invalid(`MaxItems must be a whole number from 1 to ${PAGE.max}`);
}

function readMarker(sent: string): string {
  const name = Buffer.from(sent, 'base64url').toString();
  if (readLambdaName(name) !== null) return name;
  throw invalid('Marker must be the NextMarker of an earlier page');
}

function invalid(message: string): LambdaError {
  return new LambdaError({ status: 400, type: 'InvalidParameterValueException', message });
}

function toConfiguration(fn: FunctionFacts): object {
  const version = lambdaVersion(fn.versionNumber);
  return {
    FunctionName: shortLambdaName(fn.name),
    FunctionArn: version === '$LATEST' ? lambdaArn(fn.name) : `${lambdaArn(fn.name)}:${version}`,
    Runtime: fn.runtime,
    Handler: fn.handler,
    MemorySize: fn.memory,
    Timeout: fn.timeout,
    Description: fn.description,
    LastModified: fn.updateTime === '' ? fn.createTime : fn.updateTime,
    Version: version,
    RevisionId: fn.revisionId,
    State: 'Active',
    PackageType: 'Zip',
  };
}
