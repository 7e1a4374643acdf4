import { Type } from 'typebox';
import { describeParameters } from '../../core/parameter.ts';
import { errors } from '../../http/docs.ts';
import type { RouteDocs } from '../../http/route-config.ts';
import { ENTRY_QUERY, RENAME_QUERY, WATCH_QUERY } from './parameters.ts';

const tags = ['agents'];
const byId = Type.Object({ instanceId: Type.String({ format: 'uuid' }) });
const Kind = Type.Enum(['file', 'directory', 'symlink', 'other']);

/** The facts of one entry. */
export const FileFactsRecord = Type.Object({
  path: Type.String({ description: 'Absolute, inside.' }),
  name: Type.String(),
  type: Kind,
  size: Type.Integer({ description: 'Bytes.' }),
  mode: Type.String({ description: 'Octal, such as `0644`.' }),
  modified_at: Type.String({ format: 'date-time' }),
  owner: Type.String({ description: 'Its name in the sandbox, or its number.' }),
  group: Type.String(),
  metadata: Type.Record(Type.String(), Type.String(), {
    description: 'Its attributes whose names begin with `user.e2b.`, without that.',
  }),
  target: Type.Optional(
    Type.Object(
      {
        path: Type.String(),
        type: Type.Union([Kind, Type.Null()], { description: 'null: it does not exist.' }),
      },
      { description: 'Only of a symbolic link: where it leads.' },
    ),
  ),
});

const answer = (description: string, schema: object) => ({ description, content: { 'application/json': { schema } } });
const found = (description: string) =>
  answer(description, Type.Object({ code: Type.Literal(200), file: FileFactsRecord }));

/** The OpenAPI documentation of the routes for single entries. */
export const ENTRY_DOCS = {
  stat: {
    tags,
    operationId: 'statFile',
    summary: 'Describe a file or directory inside the sandbox',
    description: 'A symbolic link at the end of the path is not followed.',
    params: byId,
    querystring: describeParameters(ENTRY_QUERY),
    response: { 200: found('It exists.'), ...errors },
  },
  rename: {
    tags,
    operationId: 'renameFile',
    summary: 'Rename a file or directory inside the sandbox',
    description: 'Makes missing directories of the new path, and replaces a file there.',
    params: byId,
    querystring: describeParameters(RENAME_QUERY),
    response: { 200: found('It has the new path.'), ...errors },
  },
  remove: {
    tags,
    operationId: 'removeFile',
    summary: 'Remove a file, or a directory with all that is in it, inside the sandbox',
    description: 'Succeeds too when nothing exists at the path. Symbolic links are not followed.',
    params: byId,
    querystring: describeParameters(ENTRY_QUERY),
    response: {
      200: answer('It does not exist.', Type.Object({ code: Type.Literal(200), path: Type.String() })),
      ...errors,
    },
  },
  watch: {
    tags,
    operationId: 'watchFiles',
    summary: 'Follow the changes in a directory inside the sandbox',
    description:
      'Server-sent events, each with JSON: `{"type","name"}`, where `type` is `create`, `write`, `chmod`, `remove` or `rename` (the old name; `create` has the new one) and `name` the path below the directory. ' +
      'The answer begins when the watch stands. A last event `error` with `{"code","message"}` says why it ended.',
    params: byId,
    querystring: describeParameters(WATCH_QUERY),
    response: {
      200: { description: 'Changes.', content: { 'text/event-stream': { schema: { type: 'string' } } } },
      ...errors,
    },
  },
} as const satisfies Record<string, RouteDocs>;
