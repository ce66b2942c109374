package lighterage.places;

import java.io.FileInputStream;
import java.io.IOException;
import java.io.InputStream;
import java.lang.reflect.Method;
import java.net.Socket;
import java.security.GeneralSecurityException;
import java.security.KeyStore;
import java.security.cert.Certificate;
import java.security.cert.CertificateFactory;
import javax.net.ssl.HttpsURLConnection;
import javax.net.ssl.SSLContext;
import javax.net.ssl.SSLParameters;
import javax.net.ssl.SSLSocket;
import javax.net.ssl.SSLSocketFactory;
import javax.net.ssl.TrustManagerFactory;
import lighterage.ConfigInvalid;

/** TLS by the platform, to a node whose certificate is for its name. */
final class Tls {
    private final SSLSocketFactory sockets;

    /** `caFile` has the certificates that are trusted, in PEM; null: the system's. Throws ConfigInvalid. */
    Tls(String caFile) {
        try {
            SSLContext context = SSLContext.getInstance("TLS");
            TrustManagerFactory trusted = null;
            if (caFile != null) {
                trusted = TrustManagerFactory.getInstance(TrustManagerFactory.getDefaultAlgorithm());
                trusted.init(store(caFile));
            }
            context.init(null, trusted == null ? null : trusted.getTrustManagers(), null);
            sockets = context.getSocketFactory();
        } catch (GeneralSecurityException | IOException wrong) {
            throw new ConfigInvalid("the certificates in " + caFile + " cannot be used: " + wrong.getMessage());
        }
    }

    private static KeyStore store(String caFile) throws GeneralSecurityException, IOException {
        KeyStore store = KeyStore.getInstance(KeyStore.getDefaultType());
        store.load(null, null);
        try (InputStream file = new FileInputStream(caFile)) {
            int count = 0;
            for (Certificate one : CertificateFactory.getInstance("X.509").generateCertificates(file)) {
                store.setCertificateEntry("ca" + count++, one);
            }
        }
        return store;
    }

    /** The socket inside TLS; the node has shown a certificate for this name. */
    Socket over(Socket raw, String host, int port) throws IOException {
        SSLSocket socket = (SSLSocket) sockets.createSocket(raw, host, port, true);
        boolean isChecked = checksName(socket);
        socket.startHandshake();
        if (!isChecked && !HttpsURLConnection.getDefaultHostnameVerifier().verify(host, socket.getSession())) {
            socket.close();
            throw new IOException("the certificate of " + host + " is for another name");
        }
        return socket;
    }

    /** Whether the handshake itself checks the name: on any JVM, and on Android since API 24. */
    private static boolean checksName(SSLSocket socket) {
        SSLParameters parameters = socket.getSSLParameters();
        try {
            Method set = SSLParameters.class.getMethod("setEndpointIdentificationAlgorithm", String.class);
            set.invoke(parameters, "HTTPS");
        } catch (ReflectiveOperationException old) {
            return false;
        }
        socket.setSSLParameters(parameters);
        return true;
    }
}
