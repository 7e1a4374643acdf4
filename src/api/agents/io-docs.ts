import { Type } from 'typebox';
import { LIMITS } from '../../core/limits.ts';
import { describeParameters } from '../../core/parameter.ts';
import { errorDocs } from '../../http/docs.ts';
import type { RouteDocs } from '../../http/route-config.ts';
import { bytes, errors, upgrade } from '../io-docs.ts';
import { DOWNLOAD_QUERY, FILES_QUERY, MKDIR_QUERY } from './queries.ts';
import { TERMINAL_QUERY } from './terminal-query.ts';

const tags = ['agent'];
const json = (description: string, schema: object) => ({ description, content: { 'application/json': { schema } } });
const byId = Type.Object({ instanceId: Type.String({ description: 'The `instance_id` of the create.' }) });
const Ok = Type.Literal(200);

const fileHeaders = { 'X-File-Mode': Type.String({ description: 'Permission bits in octal.' }) };

/** The OpenAPI documentation of an agent's files. */
export const FILE_DOCS = {
  upload: {
    tags,
    operationId: 'uploadFile',
    summary: 'Write a file inside the sandbox',
    description:
      'The fields stand before the file. The file takes the place of what is at the path when all of it has arrived; when that fails, nothing has changed.',
    params: byId,
    consumes: ['multipart/form-data'],
    body: Type.Object({
      path: Type.String({
        minLength: 1,
        description: 'Where it is to be. Ends it in `/` or is a directory there, the name of the file is added.',
      }),
      mode: Type.Optional(
        Type.String({ description: 'Permission bits in octal; default those of the file that is there, else `644`.' }),
      ),
      file: Type.String({ format: 'binary', description: `At most ${LIMITS.fileUploadBytes} bytes.` }),
    }),
    response: {
      200: json('It is there.', Type.Object({ code: Ok, path: Type.String(), size: Type.Integer() })),
      ...errors,
    },
  },
  download: {
    tags,
    operationId: 'downloadFile',
    summary: 'Read a file inside the sandbox',
    description: 'One range (`Range`, `If-Range`) and conditions (`If-None-Match`, `If-Modified-Since`) are heeded.',
    params: byId,
    querystring: describeParameters(DOWNLOAD_QUERY),
    response: {
      200: {
        description: 'The file.',
        headers: fileHeaders,
        content: { 'application/octet-stream': { schema: bytes } },
      },
      206: {
        description: 'The range.',
        headers: fileHeaders,
        content: { 'application/octet-stream': { schema: bytes } },
      },
      304: { description: 'It is what the caller has already.' },
      416: errorDocs('The range is outside the file.'),
      ...errors,
    },
  },
  list: {
    tags,
    operationId: 'listFiles',
    summary: 'List a directory inside the sandbox, ordered by path',
    params: byId,
    querystring: describeParameters(FILES_QUERY),
    response: {
      200: json(
        'What is in it.',
        Type.Object({
          code: Ok,
          files: Type.Array(
            Type.Object({
              path: Type.String({ description: 'Absolute, inside.' }),
              name: Type.String(),
              not_utf8: Type.Optional(
                Type.Literal(true, {
                  description:
                    'Only where the path is not UTF-8: `path` and `name` have U+FFFD for each byte that is none, and no request can name the file.',
                }),
              ),
              type: Type.Enum(['file', 'directory', 'symlink', 'other']),
              size: Type.Integer({ description: 'Bytes.' }),
              mode: Type.String({ description: 'Octal, such as `0644`.' }),
              modified_at: Type.String({ format: 'date-time' }),
            }),
          ),
          truncated: Type.Boolean({ description: `There are more than ${LIMITS.fileList.maxEntries}.` }),
        }),
      ),
      ...errors,
    },
  },
  mkdir: {
    tags,
    operationId: 'makeDirectory',
    summary: 'Make a directory inside the sandbox',
    params: byId,
    querystring: describeParameters(MKDIR_QUERY),
    response: { 200: json('It is there.', Type.Object({ code: Ok, path: Type.String() })), ...errors },
  },
} as const satisfies Record<string, RouteDocs>;

/** The OpenAPI documentation of an agent's terminal. */
export const TERMINAL_DOCS: RouteDocs = {
  tags,
  operationId: 'openExec',
  summary: 'Run a command inside the sandbox over a WebSocket, with or without a terminal',
  description: 'The messages are described in docs/guides/files-terminals-ports.md.',
  params: byId,
  querystring: describeParameters(TERMINAL_QUERY),
  response: { ...upgrade, ...errors },
};
