import { boolean, choice, integer, type SettingValues, text, textMap, texts } from '../../core/setting.ts';
import type { DriverContext } from '../driver-definition.ts';

/** `process.…`: settings of every sandbox on the files of this host, with zygotes or under supervisord. */
export const HOST_SETTINGS = {
  spares: integer({
    default: 4,
    min: 0,
    max: 256,
    unit: 'processes',
    doc: 'How many sandboxes without code are kept ready per Python interpreter that is in use, so that a create takes milliseconds.',
    example: '16',
  }),
  warm: texts({
    default: [],
    pattern: /^3\.\d{1,2}$/,
    shape: 'Python versions such as "3.11" (in quotes)',
    doc: 'Python versions whose zygote starts with the service instead of at the first create.',
    example: '["3.11"]',
  }),
  pythons: textMap({
    default: {},
    keyPattern: /^3\.\d{1,2}$/,
    shape: 'a map from a Python version such as "3.11" (in quotes) to the path of its interpreter',
    doc: 'Interpreters by version, for those that are not found by themselves (on the PATH, in well-known places, from pyenv).',
    example: '{"3.13": /opt/python3.13/bin/python3.13}',
  }),
  network: choice(['own', 'shared'], {
    default: 'own',
    doc: 'Whether each process sandbox has a network of its own, with an address that only the platform can talk to (`own`, as root and with `nft` or `iptables`), or the network of the host (`shared`). Servers of kind `http` and agents with ports have their own where that is possible.',
    example: 'shared',
  }),
  networkRange: text({
    default: '10.213.0.0/16',
    pattern: /^((25[0-5]|2[0-4]\d|1?\d?\d)\.){3}0\/(8|9|1\d|2[0-4])$/,
    shape: 'an IPv4 network such as 10.213.0.0/16, /8 to /24',
    doc: 'Where process sandboxes with a network of their own get their addresses from. Nothing else that this host reaches may be in it; several servers may share it.',
    example: '192.168.128.0/18',
  }),
  setForwarding: boolean({
    default: true,
    doc: 'Whether the service may switch `net.ipv4.ip_forward` on when it is off: networks of sandboxes reach nothing outside without it.',
    example: 'false',
  }),
  diskMb: integer({
    default: 20_480,
    min: 0,
    max: 1_073_741_824,
    unit: 'MB',
    doc: 'What one sandbox on the host’s own files may have on the host’s disk: the working directory and modules of a job, an environment that is being made, a copy of code, what a program puts beside its socket. It is measured every 10 seconds, and one that has more is ended with that reason. Mounts that the caller asked for do not count, nor what is in memory (`/tmp` and the like; it counts as memory). 0 = not bounded.',
    example: '2048',
  }),
} as const;

export interface HostSettings {
  readonly process: SettingValues<typeof HOST_SETTINGS>;
}

export function hostOptions({ settings, onlyProbed, ...context }: DriverContext<HostSettings>) {
  const { spares, warm, pythons, network, networkRange, setForwarding, diskMb } = settings.process;
  return {
    ...context,
    spares: onlyProbed ? 0 : spares,
    warm: onlyProbed ? [] : warm,
    pythons,
    network: { use: network, range: networkRange, setForwarding },
    disk: { maxMb: diskMb },
  };
}
