import { optionalPath, optionalText, type SettingValues } from '../../core/setting.ts';
import type { SandboxDriver } from '../driver.ts';
import type { DriverContext, DriverDefinition } from '../driver-definition.ts';
import { secretName } from './labels.ts';
import { OBJECT_NAME, POD_SETTINGS, type PodSettings } from './pod-settings.ts';

interface KubernetesSettings {
  readonly kubernetes: SettingValues<typeof SETTINGS> & { readonly pod: PodSettings };
}

/** Name of a namespace: a label as in RFC 1123. */
const NAMESPACE = /^[a-z0-9]([-a-z0-9]{0,61}[a-z0-9])?$/;

const SETTINGS = {
  kubeconfig: optionalPath({
    default: null,
    doc: 'The kubeconfig file of the cluster; its current context is used. Unset: the service account of the service’s own pod.',
    example: '/etc/rookery/kubeconfig',
  }),
  namespace: optionalText({
    default: null,
    defaultText: 'that of the context or of the service account, else `default`',
    pattern: NAMESPACE,
    shape: 'the name of a namespace of Kubernetes',
    doc: 'The namespace of pods, pools and their Secret. Nothing outside it is touched.',
    example: 'rookery',
  }),
  secret: optionalText({
    default: null,
    defaultText: '`rookery-` and 8 characters of the installation',
    pattern: OBJECT_NAME,
    shape: 'the name of a Secret of Kubernetes',
    doc: 'The Secret of the installation, from which the keys of all pods are derived; the service creates it. A fixed name lets a Role allow this Secret only. With another name existing pods cannot be reached.',
    example: 'rookery-pods',
  }),
  image: optionalText({
    default: null,
    defaultText: '`rookery:<version>`',
    pattern: /^[A-Za-z0-9][A-Za-z0-9._\-/:@]{0,199}$/,
    shape: 'the name of an image of at most 200 characters',
    doc: 'The image of `deploy/Dockerfile`: pods get the runtime from it, and pools use it unless they name another. Pulled if a node lacks it.',
    example: 'registry.example.com/rookery:0.1.0',
  }),
} as const;

/**
 * Returns the image of the server, which brings the manager into every pod. `configured` is the setting
 * `kubernetes.image`.
 */
export function installationImage(configured: string | null, version: string): string {
  return configured ?? `rookery:${version}`;
}

export const KUBERNETES = {
  settings: { ...SETTINGS, ...POD_SETTINGS },
  async create({ settings, version, ...context }: DriverContext<KubernetesSettings>): Promise<SandboxDriver> {
    const { KubernetesDriver } = await import('./driver.ts');
    const { kubeconfig, namespace, secret, image, pod } = settings.kubernetes;
    return KubernetesDriver.open({
      ...{ ...context, kubeconfig, namespace, pod },
      secretName: secret ?? secretName(context.installationId),
      image: installationImage(image, version),
    });
  },
} as const satisfies DriverDefinition;
