import { type Command, Option } from 'commander';
import type { ConfigFlags } from '../../config/env.ts';
import { SETTINGS, type SettingPath, variableOf } from '../../config/settings.ts';
import type { Setting } from '../../core/setting.ts';

const settings = Object.entries(SETTINGS) as [SettingPath, Setting<unknown>][];

/** Adds the flags of every command that reads the configuration, from the table of settings. */
export function addConfigFlags(command: Command): Command {
  command.option('-c, --config <file>', 'the configuration file (YAML); else $ROOKERY_CONFIG');
  for (const [, setting] of settings) {
    if (setting.flag === undefined) continue;
    command.option(setting.flag, `${firstSentence(setting.doc)} ${defaultOf(setting)}`.trim());
  }
  command.option('--set <setting=value>', 'any setting by its name; may be repeated', append);
  return command.addHelpText('after', settingsHelp());
}

/** Converts the flags that commander parsed into the form that the configuration reads. */
export function configFlagsOf(options: Readonly<Record<string, unknown>>): ConfigFlags {
  const flags: Partial<Record<SettingPath, string>> = {};
  for (const [path, setting] of settings) {
    if (setting.flag === undefined) continue;
    const value = options[new Option(setting.flag).attributeName()];
    if (value !== undefined) flags[path] = String(value);
  }
  return {
    file: typeof options.config === 'string' ? options.config : null,
    flags,
    sets: (options.set ?? []) as string[],
  };
}

/** The option of commands that set environment variables. */
export const SECRET_OPTION = [
  '--secret <name[=secret]>',
  'a variable with the value of a secret; may be repeated',
] as const;

/** Collects the values of an option that may be repeated. */
export function append(value: string, before: readonly string[] = []): readonly string[] {
  return [...before, value];
}

function settingsHelp(): string {
  const width = Math.max(...settings.map(([path]) => path.length));
  const lines = settings.map(([path, setting]) =>
    `  ${path.padEnd(width)}  ${firstSentence(setting.doc)} ${defaultOf(setting)}`.trimEnd(),
  );
  return `
Every setting can be given by --set, by an environment variable (${variableOf('jwt.secretFile')} for jwt.secretFile) and in
the configuration file. Flags win over the environment, the environment over the file. docs/reference/configuration.md has them in full.

${lines.join('\n')}
`;
}

function firstSentence(doc: string): string {
  return (doc.split(/(?<=[.!?]) (?=[A-Z])/)[0] ?? doc).replaceAll('`', '');
}

function defaultOf(setting: Setting<unknown>): string {
  const value = setting.defaultText ?? setting.default;
  if (value === null || value === false || (typeof value === 'object' && Object.keys(value).length === 0)) return '';
  return `(default: ${typeof value === 'object' ? Object.values(value).join(', ') : String(value)})`;
}
