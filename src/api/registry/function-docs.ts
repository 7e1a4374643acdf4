import { Type } from 'typebox';
import { FUNCTION_REGISTER, FUNCTION_UPDATE } from '../../core/function-fields.ts';
import { describeParameters } from '../../core/parameter.ts';
import { PUBLISH } from '../../core/publish.ts';
import type { RouteDocs } from '../../http/route-config.ts';
import { handled, WRONG_BODY, WRONG_REQUEST } from './docs.ts';
import { FUNCTION_DELETE_QUERY, FUNCTION_QUERY, FUNCTIONS_QUERY, VERSIONS_QUERY } from './queries.ts';
import { Deleted, FunctionList, OneFunction, Registered, VersionList } from './schemas.ts';

const tags = ['function'];
const byName = Type.Object({
  name: Type.String({ minLength: 1, description: 'The name `0@{service}@{funcName}`, or a URN of the function.' }),
});

/** The OpenAPI documentation of functions. */
export const FUNCTION_DOCS = {
  register: {
    tags,
    operationId: 'registerFunction',
    summary: 'Register a function',
    description: 'When it has answered, the function survives a power cut.',
    body: FUNCTION_REGISTER.describe(),
    response: { 200: handled('It is registered.', Registered), ...WRONG_REQUEST },
  },
  list: {
    tags,
    operationId: 'listFunctions',
    summary: 'List all versions of all functions, newest change first',
    querystring: describeParameters(FUNCTIONS_QUERY),
    response: { 200: handled('One page.', FunctionList) },
  },
  get: {
    tags,
    operationId: 'getFunction',
    summary: 'Query one version of a function',
    description: 'When the name is a URN with its version, `versionNumber` may be left out.',
    params: byName,
    querystring: describeParameters(FUNCTION_QUERY),
    response: { 200: handled('The version.', OneFunction), ...WRONG_REQUEST },
  },
  update: {
    tags,
    operationId: 'updateFunction',
    summary: 'Update the latest revision of a function',
    description: 'Fields that are absent are kept; a field that is sent replaces the old one whole.',
    params: byName,
    body: FUNCTION_UPDATE.describe(),
    response: { 200: handled('It is updated.', OneFunction), ...WRONG_REQUEST },
  },
  delete: {
    tags,
    operationId: 'deleteFunction',
    summary: 'Delete a function, or one published version of it',
    params: byName,
    querystring: describeParameters(FUNCTION_DELETE_QUERY),
    response: { 200: handled('It is deleted.', Deleted), ...WRONG_REQUEST },
  },
  versions: {
    tags,
    operationId: 'listVersions',
    summary: 'Query all versions of a function, newest change first',
    params: byName,
    querystring: describeParameters(VERSIONS_QUERY),
    response: { 200: handled('One page; `functions` is null when there is no such function.', VersionList) },
  },
  publish: {
    tags,
    operationId: 'publishFunction',
    summary: 'Publish the latest revision of a function as a version',
    params: byName,
    body: PUBLISH.describe(),
    response: { 200: handled('It is published, and never changes.', OneFunction), ...WRONG_BODY },
  },
} as const satisfies Record<string, RouteDocs>;
