import { integer, optionalPath, path, type SettingValues, text } from '../../core/setting.ts';
import type { SandboxDriver } from '../driver.ts';
import type { DriverContext, DriverDefinition } from '../driver-definition.ts';
import { type HostSettings, hostOptions } from '../host/settings.ts';

interface SupervisorSettings extends HostSettings {
  readonly supervisor: SettingValues<(typeof SUPERVISOR)['settings']>;
}

export const SUPERVISOR = {
  rootfs: 'host',
  settings: {
    url: text({
      default: 'unix:///var/run/supervisor.sock',
      pattern: /^(unix:\/\/\/.+|http:\/\/[^/]+\/?)$/,
      shape: 'unix:///path/of/the/socket, http://host:port or http://user:password@host:port',
      doc: 'Where the supervisord answers whose programs the instances of `sandbox_type: supervisor` are. It runs on this machine, as the user of the service.',
      example: 'http://127.0.0.1:9001',
      isSocket: true,
      isSecret: true,
    }),
    credentialsFile: optionalPath({
      default: null,
      doc: 'A file with the user name and the password that supervisord asks for, as one line `user:password`. It keeps them out of `supervisor.url`; for a unix socket it is the only way.',
      example: '/etc/rookery/supervisor.credentials',
    }),
    includeDir: path({
      default: '/etc/supervisor/conf.d',
      doc: 'Where sections of programs are written. supervisord must read them: `files = <this directory>/*.conf` in its section `[include]`.',
      example: '/etc/supervisor/rookery.d',
    }),
    spares: integer({
      default: 2,
      min: 0,
      max: 64,
      unit: 'processes',
      doc: 'How many supervised sandboxes without code are kept ready per Python interpreter that is in use, once the first instance was created. Each is a program of supervisord with an interpreter of its own.',
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
