import { integer, optionalPath, path, type SettingValues, text } from '../../core/setting.ts';
import type { SandboxDriver } from '../driver.ts';
import type { DriverContext, DriverDefinition } from '../driver-definition.ts';
import { type HostSettings, hostOptions } from '../host/settings.ts';

interface SupervisorSettings extends HostSettings {
  readonly supervisor: SettingValues<(typeof SUPERVISOR)['settings']>;
}

/** Settings of the supervisor driver, and the function that creates it. */
export const SUPERVISOR = {
  settings: {
    url: text({
      default: 'unix:///var/run/supervisor.sock',
      pattern: /^(unix:\/\/\/.+|http:\/\/[^/]+\/?)$/,
      shape: 'unix:///path/of/the/socket, http://host:port or http://user:password@host:port',
      doc: 'The XML-RPC address of the supervisord that runs instances of `sandbox_type: supervisor`. It runs on this machine, as the service’s user.',
      example: 'http://127.0.0.1:9001',
      isSocket: true,
      isSecret: true,
    }),
    credentialsFile: optionalPath({
      default: null,
      doc: 'A file with one line `user:password` for supervisord. A Unix socket takes them only from here.',
      example: '/etc/rookery/supervisor.credentials',
    }),
    includeDir: path({
      default: '/etc/supervisor/conf.d',
      doc: 'The directory of program sections. supervisord must include it: `files = <this directory>/*.conf` in its section `[include]`.',
      example: '/etc/supervisor/rookery.d',
    }),
    spares: integer({
      default: 2,
      min: 0,
      max: 64,
      unit: 'processes',
      doc: 'How many programs without code are kept ready for each Python interpreter in use, after the first create.',
      example: '4',
    }),
  },
  async create(context: DriverContext<SupervisorSettings>): Promise<SandboxDriver> {
    const { SupervisorDriver } = await import('./driver.ts');
    const { supervisor } = context.settings;
    const spares = context.onlyProbed ? 0 : supervisor.spares;
    return new SupervisorDriver({ ...hostOptions(context), ...supervisor, spares });
  },
} as const satisfies DriverDefinition;
