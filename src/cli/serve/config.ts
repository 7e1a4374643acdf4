import type { Command } from 'commander';
import { addClientOptions, Client, type ClientOptions } from '../shared/client.ts';
import { contextInForce } from '../shared/contexts.ts';
import type { Context, Io } from '../shared/io.ts';
import { printJson, printTable, printWarning } from '../shared/print.ts';
import { addConfigFlags, configFlagsOf } from './config-flags.ts';
import { findRunningService, type Setting } from './running-service.ts';

interface ShowOptions extends ClientOptions {
  readonly local?: boolean;
  readonly changed?: boolean;
  readonly json?: boolean;
}

/** Adds the command `rookery config`, which shows the settings in force and their sources. */
export function register(program: Command, context: Context): void {
  const { io } = context;
  const config = program.command('config').summary('look at settings').description('The settings of a service.');
  const show = config
    .command('show')
    .summary('show the settings in force and where each comes from')
    .description(
      'Shows each setting, its value and its source: flag, environment, file or default. Secrets are masked. Asks the service of the\n' +
        'connection options, else one on this machine; with --local, or without a service, it shows what serve would have here.',
    )
    .option('--local', 'what serve would have here')
    .option('--changed', 'only those that are not as by default')
    .option('--json', 'print JSON');
  addClientOptions(addConfigFlags(show)).action(async options => showSettings(io, options));
}

async function showSettings(io: Io, options: ShowOptions): Promise<void> {
  const all = (await isRemote(io, options)) ? await settingsOfService(io, options) : await settingsHere(io, options);
  const settings = options.changed === true ? all.filter(each => !each.is_default) : all;
  if (options.json === true) printJson(io, settings);
  else printTable(io, COLUMNS, settings);
}

async function isRemote(io: Io, options: ShowOptions): Promise<boolean> {
  if (hasOwnSettings(options)) return false;
  const address = options.address ?? (io.environment.ROOKERY_ADDRESS || undefined);
  return address !== undefined || (await contextInForce(options.context, io.environment)) !== null;
}

function hasOwnSettings(options: ShowOptions): boolean {
  const { file, flags, sets } = configFlagsOf(options as Readonly<Record<string, unknown>>);
  return options.local === true || file !== null || sets.length > 0 || Object.keys(flags).length > 0;
}

async function settingsOfService(io: Io, options: ClientOptions): Promise<readonly Setting[]> {
  const client = await Client.open(options, io);
  return (await client.json('GET', '/api/settings')).settings as readonly Setting[];
}

async function settingsHere(io: Io, options: ShowOptions): Promise<readonly Setting[]> {
  const [{ loadConfigOrExplain }, { settingsInForce }] = await Promise.all([
    import('./serve.ts'),
    import('../../config/in-force.ts'),
  ]);
  const config = await loadConfigOrExplain(io, options as Readonly<Record<string, unknown>>);
  if (hasOwnSettings(options)) return settingsInForce(config);
  const running = await findRunningService(io, config);
  if (running === null) return settingsInForce(config);
  if (running.settings !== null) return running.settings;
  printWarning(io, `${running.address} does not show its settings to this user: these are those of another serve here`);
  return settingsInForce(config);
}

const COLUMNS = [
  { title: 'SETTING', text: ({ name }: Setting) => name },
  { title: 'VALUE', text: ({ value }: Setting) => textOf(value), isFlexible: true },
  { title: 'FROM', text: (setting: Setting) => setting.source ?? '-', isFlexible: true },
];

function textOf(value: unknown): string {
  if (value === null || value === '') return '-';
  return typeof value === 'string' ? value : JSON.stringify(value);
}
