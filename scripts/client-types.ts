import { readFileSync } from 'node:fs';
import { join } from 'node:path';
import type { ClientDocument, Parameter, Schema } from './client-document.ts';
import { ROOT } from './command.ts';

/** Operation from the view of a client. */
interface ClientOperation {
  readonly id: string;
  readonly method: string;
  readonly path: string;
  /** Names of the path's parameters. */
  readonly names: readonly string[];
  readonly query: readonly Parameter[];
  readonly body: Schema | undefined;
  readonly answer: Schema | undefined;
}

const SYSTEM = new Set(['health', 'ready', 'metrics', 'openapi']);
const REFERENCE = '#/components/schemas/';

export function readClientDocument(): ClientDocument {
  return JSON.parse(readFileSync(join(ROOT, 'openapi/rookery.json'), 'utf8')) as ClientDocument;
}

/**
 * Returns the operations that clients call by name. Requests of the passthrough have no schema, so they are
 * left out.
 */
function clientOperations({ paths }: ClientDocument): readonly ClientOperation[] {
  return Object.entries(paths).flatMap(([path, methods]) =>
    Object.entries(methods).flatMap(([method, { operationId: id, parameters = [], requestBody, responses }]) => {
      if (SYSTEM.has(id) || path.startsWith('/serverless/v1/http/')) return [];
      return {
        id,
        method: method.toUpperCase(),
        path,
        names: [...path.matchAll(/\{(\w+)\}/g)].map(([, name = '']) => name),
        query: parameters.filter((one): one is Parameter => 'in' in one && one.in === 'query'),
        body: requestBody?.content['application/json']?.schema,
        answer: (responses[200] ?? responses[201])?.content?.['application/json']?.schema,
      };
    }),
  );
}

/** Returns the types and paths of all operations in TypeScript, for `@rookery/client` and the dashboard. */
export function typescriptTypes(document: ClientDocument): string {
  const operations = clientOperations(document);
  return [
    '// Made by `npm run generate` from openapi/rookery.json.',
    ...Object.entries(document.components.schemas).flatMap(([name, schema]) => [
      ...commentOf(schema, ''),
      `export type ${name} = ${objectType(schema)};`,
      '',
    ]),
    'export interface Operations {',
    ...operations.flatMap(({ id, names, query, body, answer }) => [
      `  ${id}: {`,
      `    params: ${names.length === 0 ? 'object' : `{ ${names.map(name => `${name}: string`).join('; ')} }`};`,
      `    query: ${query.length === 0 ? 'object' : `{ ${query.map(one => `${key(one.name)}?: ${typeOf(one.schema)} | undefined`).join('; ')} }`};`,
      `    body: ${body === undefined ? 'undefined' : typeOf(body)};`,
      `    answer: ${answer === undefined ? 'unknown' : typeOf(answer)};`,
      '  };',
    ]),
    '}',
    '',
    'export const PATHS: Readonly<Record<keyof Operations, readonly [method: string, path: string]>> = {',
    ...operations.map(({ id, method, path }) => `  ${id}: ['${method}', '${path}'],`),
    '};',
    '',
  ].join('\n');
}

function typeOf(schema: Schema): string {
  const { $ref, const: constant, enum: values, anyOf, oneOf, type } = schema;
  if ($ref !== undefined) return $ref.slice(REFERENCE.length);
  if (constant !== undefined) return JSON.stringify(constant);
  if (values !== undefined) return values.map(value => JSON.stringify(value)).join(' | ');
  const choices = anyOf ?? oneOf;
  if (choices !== undefined) return [...new Set(choices.map(typeOf))].join(' | ');
  if (typeof type === 'object') return type.map(one => typeOf({ ...schema, type: one })).join(' | ');
  switch (type) {
    case 'string':
    case 'boolean':
    case 'null':
      return type;
    case 'integer':
    case 'number':
      return 'number';
    case 'array':
      return listOf(schema.items === undefined ? 'unknown' : typeOf(schema.items));
    case 'object':
      return objectType(schema);
    default:
      return 'unknown';
  }
}

function listOf(item: string): string {
  return item.includes(' | ') ? `(${item})[]` : `${item}[]`;
}

function objectType({ properties, required = [], additionalProperties }: Schema): string {
  if (properties === undefined) {
    const value = typeof additionalProperties === 'object' ? typeOf(additionalProperties) : 'unknown';
    return `Record<string, ${value}>`;
  }
  const members = Object.entries(properties).flatMap(([name, schema]) => [
    ...commentOf(schema, '  '),
    `  ${key(name)}${required.includes(name) ? '' : '?'}: ${typeOf(schema)};`,
  ]);
  return ['{', ...members, '}'].join('\n');
}

function commentOf({ description }: Schema, indent: string): readonly string[] {
  return description === undefined ? [] : [`${indent}/** ${description.replaceAll('*/', '*\\/')} */`];
}

function key(name: string): string {
  return /^[A-Za-z_$][\w$]*$/.test(name) ? name : JSON.stringify(name);
}

/** Returns the types in Python 3.9, with a `TypedDict` for each schema, and the paths. */
export function pythonTypes(document: ClientDocument): string {
  return [
    '# Made by `npm run generate` from openapi/rookery.json.',
    'from __future__ import annotations',
    '',
    'from typing import Any, Dict, List, Literal, Mapping, Tuple, TypedDict, Union',
    '',
    ...Object.entries(document.components.schemas).flatMap(([name, schema]) => pythonClasses(name, schema)),
    '',
    '#: The method and the path of each operation.',
    'PATHS: Mapping[str, Tuple[str, str]] = {',
    ...clientOperations(document).map(({ id, method, path }) => `    "${id}": ("${method}", "${path}"),`),
    '}',
    '',
  ].join('\n');
}

/**
 * Returns the class of a schema. Optional members are in a second class, because `NotRequired` needs Python
 * 3.11.
 */
function pythonClasses(name: string, { properties = {}, required = [], description }: Schema): readonly string[] {
  const members = (isRequired: boolean) =>
    Object.entries(properties).flatMap(([field, schema]) => {
      if (required.includes(field) !== isRequired) return [];
      if (!/^[A-Za-z_]\w*$/.test(field)) throw new Error(`${name}.${field} is no name in Python`);
      return [
        `    ${field}: ${pythonType(schema)}`,
        ...(schema.description === undefined ? [] : [`    ${docstring(schema.description)}`]),
      ];
    });
  const [always, sometimes] = [members(true), members(false)];
  const doc = description === undefined ? [] : [`    ${docstring(description)}`, ''];
  if (sometimes.length === 0) return ['', `class ${name}(TypedDict):`, ...doc, ...always, ''];
  if (always.length === 0) return ['', `class ${name}(TypedDict, total=False):`, ...doc, ...sometimes, ''];
  return [
    '',
    `class _${name}(TypedDict):`,
    ...always,
    '',
    '',
    `class ${name}(_${name}, total=False):`,
    ...doc,
    ...sometimes,
    '',
  ];
}

function docstring(text: string): string {
  return `"""${text.replaceAll('\\', '\\\\').replaceAll('"""', "'''").replace(/"$/, '" ')}"""`;
}

function pythonLiteral(value: unknown): string {
  return typeof value === 'boolean' ? (value ? 'True' : 'False') : JSON.stringify(value);
}

function pythonType(schema: Schema): string {
  const { $ref, enum: values, anyOf, oneOf, type, items, additionalProperties } = schema;
  if ($ref !== undefined) return $ref.slice(REFERENCE.length);
  if (values !== undefined) return `Literal[${values.map(pythonLiteral).join(', ')}]`;
  const choices =
    anyOf ?? oneOf ?? (typeof type === 'object' ? type.map(one => ({ ...schema, type: one })) : undefined);
  if (choices !== undefined) {
    const types = [...new Set(choices.map(pythonType))];
    return types.length === 1 ? String(types[0]) : `Union[${types.join(', ')}]`;
  }
  switch (type) {
    case 'string':
      return 'str';
    case 'boolean':
      return 'bool';
    case 'null':
      return 'None';
    case 'integer':
      return 'int';
    case 'number':
      return 'float';
    case 'array':
      return `List[${items === undefined ? 'Any' : pythonType(items)}]`;
    case 'object':
      return `Dict[str, ${typeof additionalProperties === 'object' ? pythonType(additionalProperties) : 'Any'}]`;
    default:
      return 'Any';
  }
}
