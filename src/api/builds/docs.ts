import { Type } from 'typebox';
import { BUILD } from '../../core/build.ts';
import { LIMITS } from '../../core/limits.ts';
import { describeParameters } from '../../core/parameter.ts';
import { errorDocs, Warnings } from '../../http/docs.ts';
import type { RouteDocs } from '../../http/route-config.ts';
import { LOG_QUERY } from '../log-answer.ts';
import { integer } from '../query.ts';

/** The query of the list of builds. */
export const BUILDS_QUERY = { limit: integer({ min: 1, max: LIMITS.agentList.max }, LIMITS.agentList.default) };

const tags = ['code'];
const json = (description: string, schema: object) => ({ description, content: { 'application/json': { schema } } });
const Build = Type.Object(
  {
    id: Type.String({ description: 'The same content for the same runtime has the same.' }),
    status: Type.Enum(['BUILDING', 'READY', 'FAILED']),
    reason: Type.String({ description: 'Why it has failed.' }),
    tool: Type.String({ description: '`pip`, `uv` or `npm`.' }),
    runtime: Type.String(),
    started_at: Type.String({ format: 'date-time' }),
    ended_at: Type.Union([Type.String({ format: 'date-time' }), Type.Null()]),
  },
  { title: 'Build' },
);
const byId = Type.Object({ id: Type.String() });
const unknown = { 404: errorDocs('`build not found: <id>`') };

/** The OpenAPI documentation of builds. */
export const BUILD_DOCS = {
  create: {
    tags,
    operationId: 'createBuild',
    summary: 'Install what code asks for',
    description:
      'Begins to install what the files beside the code ask for, unless it is there, and answers at once. A create or a register with `dependencies: auto` does the same and waits for it: this is for those who want to see the log meanwhile, on the replica that answers.',
    body: BUILD.describe(),
    response: {
      200: json(
        'The build; null when the code asks for nothing.',
        Type.Object({ code: Type.Literal(200), build: Type.Union([Build, Type.Null()]), warnings: Warnings }),
      ),
      409: errorDocs('It cannot begin; the message says why.'),
      429: errorDocs('Too many are being made.'),
    },
  },
  list: {
    tags,
    operationId: 'listBuilds',
    summary: 'List the builds of the tenant on this replica, the newest first',
    querystring: describeParameters(BUILDS_QUERY),
    response: { 200: json('Builds.', Type.Object({ code: Type.Literal(200), builds: Type.Array(Build) })) },
  },
  get: {
    tags,
    operationId: 'getBuild',
    summary: 'The state of a build',
    params: byId,
    response: { 200: json('The build.', Type.Object({ code: Type.Literal(200), build: Build })), ...unknown },
  },
  logs: {
    tags,
    operationId: 'getBuildLogs',
    summary: 'What a build has printed',
    description: 'As text, at most 1 MiB. `follow` continues until the build has ended.',
    params: byId,
    querystring: describeParameters({ tail: LOG_QUERY.tail, follow: LOG_QUERY.follow }),
    response: {
      200: { description: 'Lines.', content: { 'text/plain': { schema: Type.String() } } },
      ...unknown,
    },
  },
} as const satisfies Record<string, RouteDocs>;
