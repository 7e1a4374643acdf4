/** Makes the manual page rookery(1) from the commands of the CLI. */
import { Command, type Option } from 'commander';
import { createWholeProgram } from '../src/cli/program.ts';
import { addClientOptions } from '../src/cli/shared/client.ts';
import { processIo } from '../src/cli/shared/io.ts';
import { CLIENT_VARIABLES } from '../src/config/settings.ts';

/** Returns the page as roff source. */
export async function manPage(version: string): Promise<string> {
  const program = await createWholeProgram({ io: processIo(new AbortController().signal), version, exitCode: 0 });
  return [
    `.TH ROOKERY 1 "" "rookery ${version}" "User Commands"`,
    '.SH NAME',
    'rookery \\- serverless cluster that you run yourself',
    '.SH SYNOPSIS',
    '.B rookery',
    '.I command',
    '.RI [ options ]',
    '.SH CONNECTION OPTIONS',
    'Every command that calls the service has these options.',
    ...addClientOptions(new Command()).options.flatMap(entry),
    '.SH COMMANDS',
    ...commandsOf(program, 'rookery'),
    '.SH ENVIRONMENT',
    ...Object.entries(CLIENT_VARIABLES).flatMap(([name, doc]) => ['.TP', `.B ${escaped(name)}`, ...paragraph(doc)]),
    '.SH FILES',
    '.TP',
    '.I /etc/rookery/rookery.yaml',
    'The settings of the service, when it was installed from the Debian package.',
    '.TP',
    '.I /usr/share/doc/rookery',
    'The documentation and the examples.',
    '.SH EXIT STATUS',
    '0: success. 1: the service refused the request. 2: wrong usage. 69: the service cannot be reached. 77: authentication failed. 78: wrong configuration.',
    '',
  ].join('\n');
}

function commandsOf(command: Command, path: string): readonly string[] {
  return command.commands
    .filter(each => each.name() !== 'help')
    .flatMap(each => {
      const name = `${path} ${each.name()}`;
      return each.commands.length > 0 ? commandsOf(each, name) : section(each, name);
    });
}

function section(command: Command, path: string): readonly string[] {
  const own = command.options.filter(option => option.helpGroupHeading === undefined);
  return [`.SS ${escaped(`${path} ${command.usage()}`)}`, ...paragraph(command.description()), ...own.flatMap(entry)];
}

function entry({ flags, description }: Option): readonly string[] {
  return ['.TP', `.B ${escaped(flags)}`, ...paragraph(description)];
}

function paragraph(text: string): readonly string[] {
  return text
    .trim()
    .split('\n')
    .map(line => (line.startsWith('  ') ? `.br\n${escaped(line.trim())}` : escaped(line)));
}

/** Escapes a text for roff, which reads a line that begins with a dot or an apostrophe as a request. */
function escaped(text: string): string {
  return text.replaceAll('\\', '\\e').replaceAll('-', '\\-').replace(/^[.']/, '\\&$&');
}
