/** Labels of everything that we make in Docker: several servers may share one daemon. */
export const LABEL_INSTALLATION = 'rookery.installation';
export const LABEL_TENANT = 'rookery.tenant';
export const LABEL_INSTANCE = 'rookery.instance';
