import type { Command, Option } from 'commander';
import { CLIENT_VARIABLES } from '../config/settings.ts';
import { commandsOf } from './document.ts';
import { addClientOptions } from './shared/client.ts';

/** Returns `rookery.1` in the language of man(7), from the same program as the help. */
export function manPage(program: Command, version: string, connection: Command): string {
  const options = addClientOptions(connection).options;
  return [
    `.TH ROOKERY 1 "" "rookery ${escaped(version)}" "User Commands"`,
    '.SH NAME',
    `rookery \\- ${escaped(program.description().replace(/\.$/, '')).replace(/^A /, 'a ')}`,
    '.SH SYNOPSIS',
    '.B rookery',
    '.I command',
    '[options]',
    '.SH DESCRIPTION',
    text(program.description()),
    '.PP',
    text('Results go to stdout, everything else to stderr. --json prints what the service answered.'),
    '.SH COMMANDS',
    ...commandsOf(program).flatMap(({ path, command }) => section(path, command)),
    '.SH CONNECTION OPTIONS',
    text('Every command that speaks with the service has these options.'),
    ...options.flatMap(optionLines),
    '.SH ENVIRONMENT',
    ...Object.entries(CLIENT_VARIABLES).flatMap(([name, doc]) => term(name, doc)),
    '.SH EXIT STATUS',
    ...EXIT_STATUS.flatMap(([code, doc]) => term(code, doc)),
    '',
  ].join('\n');
}

const EXIT_STATUS = [
  ['0', 'It worked.'],
  ['1', 'The service refused the request or failed; the sentence on stderr gives the reason.'],
  ['2', 'The command line is wrong; nothing was sent.'],
  ['69', 'The service cannot be reached, or the connection broke.'],
  ['77', 'Authentication failed, or the role is not enough.'],
  ['78', 'The configuration is wrong.'],
  ['100', 'upgrade --check: a newer version exists.'],
] as const;

function section(path: string, command: Command): string[] {
  const words = command.registeredArguments.map(argument => {
    const name = `${argument.name()}${argument.variadic ? '...' : ''}`;
    return { name: argument.required ? `<${name}>` : `[${name}]`, doc: argument.description };
  });
  const own = command.options.filter(option => option.helpGroupHeading === undefined && !option.hidden);
  return [
    `.SS rookery ${escaped([path, '[options]', ...words.map(({ name }) => name)].join(' '))}`,
    text(command.description().trim()),
    ...words.flatMap(({ name, doc }) => term(name, doc)),
    ...own.flatMap(optionLines),
  ];
}

function optionLines({ flags, description, defaultValue }: Option): string[] {
  return term(flags, defaultValue === undefined ? description : `${description} (default: ${String(defaultValue)})`);
}

function term(name: string, doc: string): string[] {
  return ['.TP', `.B ${escaped(name)}`, text(doc)];
}

/** Formats paragraphs and keeps indented lines unchanged. */
function text(content: string): string {
  return content
    .split('\n')
    .map(line => {
      if (line === '') return '.PP';
      return line.startsWith('  ') ? `.nf\n${escaped(line)}\n.fi` : escaped(line);
    })
    .join('\n')
    .replaceAll('\n.fi\n.nf\n', '\n');
}

/** Escapes backslashes, hyphens, and a control character at the beginning of a line. */
function escaped(line: string): string {
  return line.replaceAll('\\', '\\e').replaceAll('-', '\\-').replace(/^[.']/, '\\&$&');
}
