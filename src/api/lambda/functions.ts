import type { FastifyInstance, FastifyRequest } from 'fastify';
import { readLambdaName } from '../../core/lambda-name.ts';
import { LATEST } from '../../core/urn.ts';
import type { FunctionRegistry } from '../../registry/functions.ts';
import {
  answering,
  type ByName,
  describeFunction,
  type FunctionFacts,
  factsOf,
  invalidValue,
  type RouteOptions,
  readNamed,
  type SizeReads,
  toConfiguration,
} from './configuration.ts';
import { addVersionList } from './versions.ts';

/** Functions on a page, as the API of AWS Lambda has it. */
const PAGE = { default: 50, max: 10_000 };

export interface FunctionReads {
  readonly registry: Pick<FunctionRegistry, 'get' | 'latestByName' | 'versions'>;
  readonly packages: SizeReads;
}

/** Adds the routes that list and describe functions and their versions. */
export function addLambdaLists(
  app: FastifyInstance,
  path: string,
  { registry, packages }: FunctionReads,
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
        Functions: page.map(fn => toConfiguration(fn)),
        NextMarker: last !== undefined && records.length > limit ? Buffer.from(last.name).toString('base64url') : null,
      };
    }),
  );
  const described = async (request: FastifyRequest<ByName>) => {
    const { name, version } = readNamed(request);
    const fn = await registry.get(request.tenant, name, version ?? LATEST);
    const { tags } = fn.spec;
    const Configuration = await describeFunction(factsOf(fn), request.tenant, packages);
    return { Configuration, ...(tags !== null && { Tags: tags }) };
  };
  const one = `${path}/:name`;
  app.get<ByName>(one, optionsOf('read', one), (request, reply) => answering(reply, () => described(request)));
  const configuration = `${one}/configuration`;
  app.get<ByName>(configuration, optionsOf('read', configuration), (request, reply) =>
    answering(reply, async () => (await described(request)).Configuration),
  );
  addVersionList(app, `${one}/versions`, registry, optionsOf);
}

function readMaxItems(sent: unknown): number {
  if (sent === undefined) return PAGE.default;
  const items = typeof sent === 'string' && /^\d{1,5}$/.test(sent) ? Number(sent) : 0;
  if (items >= 1 && items <= PAGE.max) return items;
  throw invalidValue(`MaxItems must be a whole number from 1 to ${PAGE.max}`);
}

function readMarker(sent: string): string {
  const name = Buffer.from(sent, 'base64url').toString();
  if (readLambdaName(name) !== null) return name;
  throw invalidValue('Marker must be the NextMarker of an earlier page');
}
