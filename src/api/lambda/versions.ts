import type { FastifyInstance } from 'fastify';
import { META_CODES } from '../../core/codes.ts';
import { ServiceError } from '../../core/error.ts';
import { LAMBDA_LATEST } from '../../core/lambda-name.ts';
import { LIMITS } from '../../core/limits.ts';
import { LATEST } from '../../core/urn.ts';
import { functionNotFound, staleRevision, tooManyVersions } from '../../registry/errors.ts';
import type { FunctionRegistry } from '../../registry/functions.ts';
import {
  answering,
  type ByName,
  codeSha256Of,
  type FunctionFacts,
  invalidValue,
  type RouteOptions,
  readNamed,
  toConfiguration,
} from './configuration.ts';
import { readVersionRequest, type VersionRequest } from './requests.ts';

type VersionReads = Pick<FunctionRegistry, 'versions'>;
/** The part of the registry that publishes and deletes. */
export type VersionChanges = Pick<FunctionRegistry, 'versions' | 'publish' | 'delete'>;

/** Adds the route that lists the versions of a function. All of them fit on one page. */
export function addVersionList(
  app: FastifyInstance,
  path: string,
  registry: VersionReads,
  optionsOf: RouteOptions,
): void {
  app.get<ByName>(path, optionsOf('read', path), (request, reply) =>
    answering(reply, async () => {
      const { name } = readNamed(request);
      const { latest, published } = await versionsOf(registry, request.tenant, name);
      return { Versions: [latest, ...published].map(fn => toConfiguration(fn)), NextMarker: null };
    }),
  );
}

/** Adds the routes that publish versions, and that delete versions and functions. */
export function addVersionChanges(
  app: FastifyInstance,
  path: string,
  registry: VersionChanges,
  optionsOf: RouteOptions,
): void {
  const one = `${path}/:name`;
  app.delete<ByName>(one, optionsOf('write', one), (request, reply) =>
    answering(reply, async () => {
      const { name, version } = readNamed(request);
      if (version === LATEST) {
        throw invalidValue(`${LAMBDA_LATEST} cannot be deleted alone: leave out the qualifier to delete the function`);
      }
      await registry.delete(request.tenant, name, version ?? LATEST);
      reply.code(204);
      return null;
    }),
  );
  const versions = `${one}/versions`;
  app.post<ByName>(versions, optionsOf('write', versions), (request, reply) =>
    answering(reply, async () => {
      const { name } = readNamed(request);
      const wanted = readVersionRequest(request.body);
      const version = await publishVersion(registry, request.tenant, name, wanted);
      reply.code(201);
      return toConfiguration(version);
    }),
  );
}

/** Attempts of a publish while other clients change the function. */
const ATTEMPTS = 5;

/**
 * Publishes the latest revision under the next whole number, as AWS Lambda numbers versions. Returns the
 * newest version of the same revision if there is one. Fails as `FunctionRegistry.publish` does.
 */
export async function publishVersion(
  registry: VersionChanges,
  tenant: string,
  name: string,
  { Description: versionDesc, RevisionId, CodeSha256 }: VersionRequest,
): Promise<FunctionFacts> {
  for (let attempt = 1; ; attempt += 1) {
    const { latest, published } = await versionsOf(registry, tenant, name);
    if (RevisionId !== '' && RevisionId !== latest.revisionId) throw staleRevision();
    checkCode(latest, CodeSha256);
    const same = published.findLast(({ revisionId }) => revisionId === latest.revisionId);
    if (same !== undefined) return same;
    const { revisionId } = latest;
    const versionNumber = String(nextNumber(published));
    try {
      const { record } = await registry.publish(tenant, name, { revisionId, versionNumber, versionDesc, kind: '' });
      return JSON.parse(record) as FunctionFacts;
    } catch (error) {
      // Another client changed the function or published it at the same time.
      const isRace = error instanceof ServiceError && RACES.includes(error.number ?? 0);
      if (!isRace || attempt === ATTEMPTS) throw error;
    }
  }
}

const RACES: readonly number[] = [META_CODES.staleRevision.code, META_CODES.duplicateVersion.code];

/** Fails if the function has as many published versions as it may. */
export async function checkVersionFits(registry: VersionReads, tenant: string, name: string): Promise<void> {
  const { published } = await versionsOf(registry, tenant, name);
  if (published.length >= LIMITS.publishedVersions) throw tooManyVersions(LIMITS.publishedVersions);
}

/** Fails if the client expects other code than the function has. `expected` is empty if it expects none. */
function checkCode(latest: FunctionFacts, expected: string): void {
  const found = codeSha256Of(latest);
  if (expected === '' || expected === found) return;
  throw invalidValue(`CodeSha256 is "${expected}", but that of ${LAMBDA_LATEST} is "${found}": read it again`);
}

/** Returns the latest revision and the published versions, oldest first. Fails with `not_found`. */
async function versionsOf(registry: VersionReads, tenant: string, name: string) {
  const { records } = await registry.versions(tenant, name, 1, LIMITS.publishedVersions + 1);
  const facts = records.map(record => JSON.parse(record) as FunctionFacts).reverse();
  const latest = facts.find(({ versionNumber }) => versionNumber === LATEST);
  if (latest === undefined) throw functionNotFound(name);
  return { latest, published: facts.filter(fn => fn !== latest) };
}

function nextNumber(published: readonly FunctionFacts[]): number {
  const numbers = published.map(({ versionNumber }) => (/^\d{1,15}$/.test(versionNumber) ? Number(versionNumber) : 0));
  return Math.max(0, ...numbers) + 1;
}
